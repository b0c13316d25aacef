/** A command: what it writes, what it reads, and how it ends. */
import { randomUUID } from "node:crypto";
import { Faulted, GoneError, settled } from "./errors.js";
import type { ControlResult, Event, ExecResult, FrameList, Output, Process, ProcessInput, Receipt } from "./schema.js";
import type { Session } from "./session.js";
import type { CallOptions } from "./transport.js";

/** A part of what a command wrote. */
export interface Written {
  stream: "stdout" | "stderr";
  bytes: Uint8Array;
  /** Of the first byte, in its stream. */
  offset: number | bigint;
}

const most = 512 << 10; // bytes of one input: policy judges 1 MiB of JSON

/** A command that runs, or has run. Its events are those from the start on, however often they are gone through. */
export class Execution implements AsyncIterable<Event> {
  readonly id: string;
  readonly intent: string;
  #receipt: Receipt | undefined;
  readonly #aborted: AbortSignal | undefined;
  readonly #end = () => void this.cancel().catch(() => undefined); // who waits is told why; that it had ended is no news

  constructor(
    readonly session: Session,
    of: { exec_id: string; intent_id: string; receipt?: Receipt },
    signal?: AbortSignal,
  ) {
    this.id = of.exec_id;
    this.intent = of.intent_id;
    this.#receipt = of.receipt;
    this.#aborted = signal;
    if (signal === undefined || this.#receipt !== undefined) return;
    if (signal.aborted) this.#end();
    else signal.addEventListener("abort", this.#end, { once: true });
  }

  /** It has ended, and this is what is said of it. */
  #ended(receipt: Receipt | undefined): void {
    if (receipt === undefined) return;
    this.#receipt = receipt;
    this.#aborted?.removeEventListener("abort", this.#end);
  }

  /** Every event, the receipt last. Connections that are lost are taken up again: nothing is left out, nothing comes twice. */
  [Symbol.asyncIterator](): AsyncGenerator<Event, void, undefined> {
    return this.events();
  }

  /** The events behind a cursor. */
  async *events(options: { after?: string; signal?: AbortSignal } = {}): AsyncGenerator<Event, void, undefined> {
    const ask = { path: { exec_id: this.id }, signal: options.signal ?? this.#aborted };
    for await (const event of this.session.stockade.follow("GET /v1/executions/{exec_id}/output", ask, options.after, (e: Event) => e.cursor)) {
      if (event.kind === "keepalive") continue;
      this.#ended(event.receipt);
      yield event;
    }
  }

  /** What it writes, as it comes, both streams in order of arrival. What is not kept any more is a GoneError. */
  async *output(options: { after?: string; signal?: AbortSignal } = {}): AsyncGenerator<Written, void, undefined> {
    for await (const event of this.events(options)) {
      if (event.gone !== undefined) throw new GoneError(event.gone);
      if (event.kind === "output") {
        yield { stream: event.stream as Written["stream"], bytes: event.bytes ?? new Uint8Array(), offset: event.offset ?? 0 };
      }
    }
  }

  /** What it writes to one stream, as text, line by line. */
  async *lines(stream: Written["stream"] = "stdout", options: { signal?: AbortSignal } = {}): AsyncGenerator<string, void, undefined> {
    const decoder = new TextDecoder();
    let rest = "";
    for await (const part of this.output(options)) {
      if (part.stream !== stream) continue;
      const all = (rest + decoder.decode(part.bytes, { stream: true })).split("\n");
      rest = all.pop()!;
      yield* all;
    }
    rest += decoder.decode();
    if (rest !== "") yield rest;
  }

  /** Waits for its end. A denial that came while it waited for its turn, or for somebody's leave, is thrown. */
  async finished(options: { signal?: AbortSignal } = {}): Promise<Finished> {
    return Execution.finish(this.session, settled(await this.wait(options)));
  }

  /** Waits for its receipt, whatever that says. */
  async wait(options: { signal?: AbortSignal } = {}): Promise<Receipt> {
    const signal = options.signal ?? this.#aborted;
    for (let seq = "0"; this.#receipt === undefined; ) {
      const { document } = await this.session.stockade.call("GET /v1/intents/{intent_id}/frames", {
        path: { intent_id: this.intent },
        query: { after: seq, wait_ms: 30_000 },
        signal,
      });
      const page = document as FrameList;
      seq = page.gone?.first_available ?? String(page.frames?.at(-1)?.seq ?? seq); // only the end is waited for
      this.#ended(page.receipt);
    }
    return this.#receipt;
  }

  /** Writes to its stdin, once, whatever happens to the connection. It has to have been started with `stdin_open`. */
  write(data: string | Uint8Array, options: CallOptions = {}): Promise<void> {
    return this.#feed(data, false, options);
  }

  /** Ends its stdin, behind what may be said last. That it has ended already is fine where nothing is. */
  async end(data?: string | Uint8Array, options: CallOptions = {}): Promise<void> {
    try {
      await this.#feed(data ?? "", true, options);
    } catch (error) {
      if (data !== undefined || !(error instanceof Faulted) || (error.code !== "exec_ended" && error.code !== "stdin_closed")) throw error;
    }
  }

  async #feed(data: string | Uint8Array, close: boolean, options: CallOptions): Promise<void> {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    for (let from = 0; from < bytes.length || close; ) {
      const part = bytes.subarray(from, from + most);
      const last = from + part.length === bytes.length;
      const body: ProcessInput = { input_id: randomUUID() };
      if (part.length > 0) body.data = { inline_bytes: { bytes: part } };
      if (last && close) body.close = true;
      const { document } = await this.session.stockade.call("POST /v1/executions/{exec_id}/input", { path: { exec_id: this.id }, body, signal: options.signal });
      const receipt = document as Receipt;
      if (receipt.error_code === "stdin_full" && receipt.outcome === "faulted" && part.length > 0) {
        from += Number(receipt.payload?.control?.bytes ?? 0); // it reads slowly; the rest is offered again
        continue;
      }
      settled(receipt);
      if (last) return;
      from += part.length;
    }
  }

  /** Delivers a signal. */
  signal(signal: string, options: CallOptions = {}): Promise<ControlResult> {
    return this.#control("signal", { signal }, options);
  }

  /** Ends it with its whole tree, and returns when it has ended: canceled, or already_finished. */
  cancel(how: { grace_timeout_ns?: bigint; wait?: boolean } = {}, options: CallOptions = {}): Promise<ControlResult> {
    return this.#control("cancel", how, options);
  }

  pause(options: CallOptions = {}): Promise<ControlResult> {
    return this.#control("pause", {}, options);
  }

  resume(options: CallOptions = {}): Promise<ControlResult> {
    return this.#control("resume", {}, options);
  }

  /** Changes its time limit: milliseconds from its start. */
  modify(timeout: number, options: CallOptions = {}): Promise<ControlResult> {
    return this.#control("modify", { timeout_ns: BigInt(Math.ceil(timeout * 1e6)) }, options);
  }

  /** The execution as the supervisor has it now. */
  async show(options: CallOptions = {}): Promise<Process> {
    return (await this.session.stockade.call("GET /v1/executions/{exec_id}", { path: { exec_id: this.id }, ...options })).document as Process;
  }

  async #control(verb: "signal" | "cancel" | "pause" | "resume" | "modify", body: Record<string, unknown>, options: CallOptions): Promise<ControlResult> {
    const receipt = await this.session.stockade.settle(`POST /v1/executions/{exec_id}/${verb}`, { path: { exec_id: this.id }, body, ...options });
    return receipt.payload!.control!;
  }

  /** What a receipt tells of a command that has run, with its output. */
  static async finish(session: Session, receipt: Receipt): Promise<Finished> {
    const result = receipt.payload?.exec;
    if (result === undefined) throw new Faulted(receipt);
    const [stdout, stderr] = await Promise.all([kept(session, result.stdout), kept(session, result.stderr)]);
    return new Finished(receipt, result, stdout, stderr);
  }
}

/** A command that has run. */
export class Finished {
  readonly #stdout: Uint8Array | Error;
  readonly #stderr: Uint8Array | Error;

  constructor(
    readonly receipt: Receipt,
    readonly result: ExecResult,
    stdout: Uint8Array | Error,
    stderr: Uint8Array | Error,
  ) {
    this.#stdout = stdout;
    this.#stderr = stderr;
  }

  /** It ended with 0, by itself. */
  get ok(): boolean {
    return this.result.status === "ok" && this.result.exit_code === 0;
  }

  /** -1 when there is none: a signal, or a limit, ended it. */
  get exitCode(): number {
    return this.result.exit_code;
  }

  /** ok (whatever the exit code), timeout, signaled or error. */
  get status(): string {
    return this.result.status;
  }

  /** What it wrote, as text. Output that policy has in a blob and does not give to its reader is Denied. */
  get stdout(): string {
    return new TextDecoder().decode(this.bytes("stdout"));
  }

  get stderr(): string {
    return new TextDecoder().decode(this.bytes("stderr"));
  }

  bytes(stream: Written["stream"]): Uint8Array {
    const content = stream === "stdout" ? this.#stdout : this.#stderr;
    if (content instanceof Error) throw content;
    return content;
  }

  /** The ceiling of output cut it; `result.stdout_bytes` says how much there was. */
  truncated(stream: Written["stream"]): boolean {
    return this.result[stream]?.truncated ?? false;
  }
}

/** All that is kept of a stream; or why it cannot be had, for who asks for it: the command has run all the same. */
async function kept(session: Session, output: Output | undefined): Promise<Uint8Array | Error> {
  if (output?.inline_text !== undefined) return new TextEncoder().encode(output.inline_text.text);
  if (output?.inline_bytes !== undefined) return output.inline_bytes.bytes;
  if (output?.blob === undefined) return new Uint8Array();
  try {
    return await session.stockade.blob(output.blob.blob_ref);
  } catch (error) {
    return error as Error;
  }
}

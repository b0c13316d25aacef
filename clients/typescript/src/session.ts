/** A session: commands, shells, files and tools inside it. */
import type { Stockade } from "./client.js";
import { Execution, type Finished } from "./execution.js";
import { Faulted, settled } from "./errors.js";
import { Files } from "./files.js";
import { notices, position, sequence } from "./log.js";
import { defined, input } from "./members.js";
import type { Exec, Mount, Notice, OpenResult, Pending, Process, Receipt, Session as SessionRecord, Shell as ShellRecord, SpaceResult, Stdin, ToolAnswer } from "./schema.js";
import { Shell } from "./shell.js";
import type { CallOptions } from "./transport.js";

/** What a command is asked for, beside its arguments. Abort ends the command. */
export interface ExecOptions extends Partial<Omit<Exec, "session_id" | "argv" | "stdin" | "terminal" | "wait" | "wait_ms" | "scope">>, CallOptions {
  /** What the command reads. Absent is the end of file at once. */
  stdin?: string | Uint8Array | Stdin;
  /** Wall time in milliseconds; `timeout_ns` says the same in nanoseconds. */
  timeout?: number;
}

/** What a shell is asked for; without argv it is the session's own. */
export interface ShellOptions extends Omit<ExecOptions, "stdin"> {
  argv?: string[];
  terminal?: Exec["terminal"];
}

export class Session {
  readonly files: Files;

  constructor(
    readonly stockade: Stockade,
    readonly id: string,
    /** Of its open; absent of a session that was found by its id. */
    readonly receipt?: Receipt,
  ) {
    this.files = new Files(this);
  }

  /** What it was granted, and what the kernel says is in force. */
  get opened(): OpenResult | undefined {
    return this.receipt?.payload?.open;
  }

  /** Runs a command to its end. That it failed is no error: `exitCode` says so. */
  async exec(argv: readonly string[], options: ExecOptions = {}): Promise<Finished> {
    if (options.signal !== undefined) {
      const execution = await this.start(argv, options);
      return execution.finished();
    }
    const receipt = await this.stockade.settle("POST /v1/exec", { body: await this.#exec(argv, options), key: options.key });
    return Execution.finish(this, receipt);
  }

  /** Starts a command, to be followed, written to and ended while it runs. */
  async start(argv: readonly string[], options: ExecOptions = {}): Promise<Execution> {
    const body = { ...(await this.#exec(argv, options)), wait: false };
    const made = (await this.stockade.make("POST /v1/exec", { body, key: options.key, signal: options.signal }, this.#cancel)) as Pending | Receipt;
    if ("outcome" in made) return new Execution(this, { ...ids(settled(made)), receipt: made }, options.signal);
    return new Execution(this, made, options.signal);
  }

  /** An execution, by its id. */
  async execution(id: string, options: CallOptions = {}): Promise<Execution> {
    const process = (await this.stockade.call("GET /v1/executions/{exec_id}", { path: { exec_id: id }, ...options })).document as Process;
    return new Execution(this, process, options.signal);
  }

  /** Opens a shell. Abort leaves none behind. */
  async shell(options: ShellOptions = {}): Promise<Shell> {
    const { terminal, argv = [], ...rest } = options;
    const body = { ...(await this.#exec(argv, rest)), ...defined({ terminal, argv: argv.length > 0 ? argv : undefined }) };
    if (argv.length === 0) delete (body as Partial<Exec>).argv;
    const made = await this.stockade.make("POST /v1/shells", { body, key: options.key, signal: options.signal }, this.#cancel);
    if ("outcome" in made) throw new Faulted(settled(made));
    return new Shell(this, made);
  }

  /** Carries out a call of a tool as a model made it. A refusal is an answer, in the provider's form, too. */
  async callTool(profile: string, call: unknown, options: Pick<CallOptions, "signal"> = {}): Promise<ToolAnswer> {
    const body = { profile, session_id: this.id, call };
    return (await this.stockade.call("POST /v1/tools/call", { body, ...options })).document as ToolAnswer;
  }

  /** The session as the supervisor has it now. */
  async show(options: CallOptions = {}): Promise<SessionRecord> {
    return (await this.stockade.call("GET /v1/sessions/{session_id}", { path: { session_id: this.id }, ...options })).document as SessionRecord;
  }

  /** Its event log, from behind `after` on, until it has ended. */
  async *events(options: { after?: number | bigint; signal?: AbortSignal } = {}): AsyncGenerator<Notice, void, undefined> {
    yield* notices(this.stockade.follow("GET /v1/sessions/{session_id}/events", { path: { session_id: this.id }, signal: options.signal }, position(options.after), sequence));
  }

  /** Delivers a signal to everything that runs in it. */
  signal(signal: string, options: CallOptions = {}): Promise<Receipt> {
    return this.stockade.settle("POST /v1/signal", { body: { session_id: this.id, signal }, ...options });
  }

  pause(options: CallOptions = {}): Promise<Receipt> {
    return this.stockade.settle("POST /v1/sessions/{session_id}/pause", { path: { session_id: this.id }, body: {}, ...options });
  }

  resume(options: CallOptions = {}): Promise<Receipt> {
    return this.stockade.settle("POST /v1/sessions/{session_id}/resume", { path: { session_id: this.id }, body: {}, ...options });
  }

  /** A page of what an overlay has that its source has not. */
  async diff(query: { guest_path?: Mount["guest_path"]; after?: string; limit?: number } = {}, options: CallOptions = {}): Promise<SpaceResult> {
    return (await this.stockade.call("GET /v1/sessions/{session_id}/diff", { path: { session_id: this.id }, query: defined(query), ...options })).document as SpaceResult;
  }

  /** Makes the changes of an overlay to its source: all, or those at and below paths. */
  commit(change: { guest_path?: string; paths?: string[] } = {}, options: CallOptions = {}): Promise<Receipt> {
    return this.stockade.settle("POST /v1/sessions/{session_id}/commit", { path: { session_id: this.id }, body: defined(change), ...options });
  }

  /** Empties an overlay. */
  discard(change: { guest_path?: string } = {}, options: CallOptions = {}): Promise<Receipt> {
    return this.stockade.settle("POST /v1/sessions/{session_id}/discard", { path: { session_id: this.id }, body: defined(change), ...options });
  }

  /** Ends it, with everything in it. */
  close(how: { mode?: "graceful" | "force"; grace_timeout_ns?: bigint } = {}, options: CallOptions = {}): Promise<Receipt> {
    return this.stockade.settle("POST /v1/close", { body: { session_id: this.id, ...defined(how) }, ...options });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close({ mode: "force" });
  }

  /** Ends what was started for somebody who has gone. */
  readonly #cancel = (made: Receipt | Pending | ShellRecord) => ("outcome" in made ? undefined : new Execution(this, made).cancel());

  async #exec(argv: readonly string[], options: ExecOptions): Promise<Exec> {
    const { stdin, timeout, key: _, signal, ...rest } = options;
    const body: Exec = { session_id: this.id, argv: [...argv], ...defined(rest) };
    if ((typeof stdin === "string" || stdin instanceof Uint8Array) && stdin.length > inline) {
      body.stdin = { blob_ref: { blob_ref: (await this.stockade.putBlob(stdin, { signal })).blob_ref } };
    } else if (stdin !== undefined) {
      body.stdin = input(stdin);
    }
    if (timeout !== undefined) body.timeout_ns = BigInt(Math.ceil(timeout * 1e6));
    return body;
  }
}

const inline = 128 << 10; // what is more travels as a blob: policy judges 1 MiB of JSON

function ids(receipt: Receipt): { exec_id: string; intent_id: string } {
  return { exec_id: receipt.exec_id!, intent_id: receipt.intent_id };
}

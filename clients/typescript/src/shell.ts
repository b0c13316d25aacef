/** A shell: a command on a terminal, which an agent types into. */
import { randomUUID } from "node:crypto";
import { settled } from "./errors.js";
import { defined, input } from "./members.js";
import type { Receipt, Shell as ShellRecord, ShellAction, ShellChunk, ShellOutput, ShellResult } from "./schema.js";
import type { Session } from "./session.js";
import type { CallOptions } from "./transport.js";

export class Shell implements AsyncIterable<ShellChunk> {
  constructor(
    readonly session: Session,
    /** As it was when it was opened. */
    readonly opened: ShellRecord,
  ) {}

  get id(): string {
    return this.opened.exec_id;
  }

  /** Has it run one command, and waits for the end of that. Directory, variables and jobs stay for the next. */
  async run(command: string, options: { timeout?: number } & CallOptions = {}): Promise<{ stdout: string; exitCode: number | undefined; timedOut: boolean; result: ShellResult }> {
    const { timeout, ...rest } = options;
    const timeout_ns = timeout === undefined ? undefined : BigInt(Math.ceil(timeout * 1e6));
    const receipt = await this.session.stockade.settle("POST /v1/shells/{exec_id}/run", {
      path: { exec_id: this.id },
      body: { command, input_id: randomUUID(), ...defined({ timeout_ns }) },
      ...rest,
    });
    const result = receipt.payload!.shell!;
    const output = result.stdout;
    const bytes = output?.blob !== undefined ? await this.session.stockade.blob(output.blob.blob_ref) : output?.inline_bytes?.bytes;
    return {
      stdout: output?.inline_text?.text ?? new TextDecoder().decode(bytes ?? new Uint8Array()),
      exitCode: result.exit_code,
      timedOut: result.timed_out ?? false,
      result,
    };
  }

  /** Types. */
  type(data: string | Uint8Array, options: CallOptions = {}): Promise<ShellResult> {
    return this.#input({ data: input(data) }, options);
  }

  /** Does what a hand does beside typing: CTRL_C, CTRL_D, SIGINT, … */
  act(actions: ShellAction[], options: CallOptions = {}): Promise<ShellResult> {
    return this.#input({ actions }, options);
  }

  /** What comes out of it from its beginning on, until it has ended. */
  [Symbol.asyncIterator](): AsyncGenerator<ShellChunk, void, undefined> {
    return this.output();
  }

  /** What comes out of it behind a token. Connections that are lost are taken up again. */
  async *output(options: { after?: string; signal?: AbortSignal } = {}): AsyncGenerator<ShellChunk, void, undefined> {
    const ask = { path: { exec_id: this.id }, signal: options.signal };
    for await (const page of this.session.stockade.follow("GET /v1/shells/{exec_id}/output", ask, options.after, (o: ShellOutput) => o.token)) {
      if (page.exec_id === undefined) continue; // a sign of life
      yield* page.chunks;
      if (page.end) return;
    }
  }

  resize(cols: number, rows: number, options: CallOptions = {}): Promise<Receipt> {
    return this.session.stockade.settle("POST /v1/shells/{exec_id}/resize", { path: { exec_id: this.id }, body: { cols, rows }, ...options });
  }

  async show(options: CallOptions = {}): Promise<ShellRecord> {
    return (await this.session.stockade.call("GET /v1/shells/{exec_id}", { path: { exec_id: this.id }, ...options })).document as ShellRecord;
  }

  /** Hangs up; what is left is killed after the grace. */
  close(how: { mode?: "graceful" | "force"; grace_timeout_ns?: bigint } = {}, options: CallOptions = {}): Promise<Receipt> {
    return this.session.stockade.settle("POST /v1/shells/{exec_id}/close", { path: { exec_id: this.id }, body: defined(how), ...options });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close({ mode: "force" });
  }

  async #input(body: Record<string, unknown>, options: CallOptions): Promise<ShellResult> {
    const { document } = await this.session.stockade.call("POST /v1/shells/{exec_id}/input", { path: { exec_id: this.id }, body: { input_id: randomUUID(), ...body }, ...options });
    return settled(document as Receipt).payload!.shell!;
  }
}

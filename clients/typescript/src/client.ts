/** A supervisor, and the sessions that it has. */
import { randomUUID } from "node:crypto";
import { resolve } from "node:path";
import { Denied, settled } from "./errors.js";
import { notices, position, sequence } from "./log.js";
import { defined } from "./members.js";
import type { BlobResult, Code, Decision, Local, Mount, Notice, Pending, Receipt, Routes, Scope, Session as SessionRecord, SessionOpen, Tool } from "./schema.js";
import { Session } from "./session.js";
import { Transport, type Ask, type Call, type CallOptions, type Reply } from "./transport.js";

export interface StockadeOptions {
  /** Path of the socket; otherwise `STOCKADE_SOCKET`, or where supervisors usually have it. */
  socket?: string | undefined;
  /** Declared with every call: it tells apart the agents that one process serves. */
  scope?: Scope | undefined;
  /** How long a supervisor that this client has met may be away at a time, in milliseconds: 30 000. */
  patience?: number | undefined;
  /** Told each time a connection was lost, before what was asked is asked again. */
  onLost?: ((reason: Error) => void) | undefined;
}

/** What a session is asked for: the members of `SessionOpen` and of its local target, side by side. */
export interface OpenOptions extends Omit<SessionOpen, "target" | "scope">, Omit<Local, "mounts">, CallOptions {
  /** `HOST:GUEST` or `HOST:GUEST:MODE` (ro, rw or overlay; ro where it is not said), or as the contract has them. */
  mounts?: readonly (string | Mount)[];
}

const usual = "/run/stockade/stockade.sock";
const settling = 10_000; // milliseconds, from an abort on, to find out what it leaves behind

export class Stockade {
  readonly #transport: Transport;

  constructor(options: StockadeOptions = {}) {
    this.#transport = new Transport({
      socket: options.socket ?? (process.env["STOCKADE_SOCKET"] || usual),
      scope: options.scope,
      patience: options.patience ?? 30_000,
      onLost: options.onLost,
    });
  }

  /**
   * Asks any route of the interface, with types from the contract. What comes back is what the supervisor said, receipts of
   * whatever outcome included; an operation with effect has a key, and is asked again when its answer is lost.
   */
  call<R extends keyof Routes>(route: R, ask: Call<R> = {}): Promise<Reply<R>> {
    return this.#transport.call(route, ask);
  }

  /** Carries out an operation with effect: its receipt, when it took place. Otherwise Denied or Faulted is thrown. */
  async settle<R extends keyof Routes>(route: R, ask: Ask<R>): Promise<Receipt> {
    return settled((await this.#transport.call(route, ask)).document as Receipt);
  }

  /**
   * Asks for what stays until it is ended: a session, a shell, a command. An abort leaves nothing of it behind. Where no request has
   * left, none will; where one may have arrived, it is asked by its key, for ten seconds at most, what there is, and `end` ends that.
   */
  async make<R extends keyof Routes>(route: R, ask: Ask<R>, end: (made: Reply<R>["document"]) => Promise<unknown> | undefined): Promise<Reply<R>["document"]> {
    const key = ask.key ?? randomUUID();
    let sent = false;
    try {
      return (await this.#transport.call(route, { ...ask, key }, () => (sent = true))).document;
    } catch (error) {
      if (sent && ask.signal?.aborted) {
        const again = { ...ask, key, preferAsync: true, signal: AbortSignal.timeout(settling) };
        void this.#transport.call(route, again).then(({ document }) => end(document)).catch(() => undefined); // nobody waits who could be told
      }
      throw error;
    }
  }

  /** Follows a route that is a stream, and takes it up again where it broke off. */
  follow<R extends keyof Routes>(
    route: R,
    ask: Ask<R>,
    after: string | undefined,
    cursor: (event: Routes[R]["event"]) => string | undefined,
  ): AsyncGenerator<Routes[R]["event"], void, undefined> {
    return this.#transport.follow(route, ask, after, cursor);
  }

  /**
   * Opens a session. It ends with `close`, at the end of an `await using` block, or when its time is over. Abort leaves none behind.
   *
   *     await using s = await new Stockade().open({ profile: "workspace", mounts: [".:/work:rw"], workdir: "/work" });
   */
  async open(options: OpenOptions = {}): Promise<Session> {
    const { mounts, root, workdir, env, network_mode, egress, hostname, key, signal, ...rest } = options;
    const local: Local = { ...defined({ root, workdir, env, network_mode, egress, hostname }) };
    if (mounts !== undefined) local.mounts = mounts.map(mount);
    const body = { target: { local }, ...defined(rest) } as SessionOpen;
    const receipt = settled((await this.make("POST /v1/sessions", { body, key, signal }, (made) => this.#unopen(made))) as Receipt);
    return new Session(this, receipt.session_id!, receipt);
  }

  /** Closes what was opened for somebody who has gone; one that waits for leave is taken back. */
  #unopen(made: Receipt | Pending): Promise<unknown> | undefined {
    if ("outcome" in made) return made.outcome === "ok" ? this.session(made.session_id!).close({ mode: "force" }) : undefined;
    return made.approval_id === undefined ? undefined : this.settle("POST /v1/approvals/{approval_id}/deny", { path: { approval_id: made.approval_id }, body: {} });
  }

  /** Opens a session for as long as `use` takes, and returns what that returns. */
  async within<T>(options: OpenOptions, use: (session: Session) => Promise<T>): Promise<T> {
    const session = await this.open(options);
    try {
      return await use(session);
    } finally {
      await session.close({ mode: "force" });
    }
  }

  /** A session that is open, by its id. */
  session(id: string): Session {
    return new Session(this, id);
  }

  /** The caller's sessions, newest first. */
  async sessions(filter: Routes["GET /v1/sessions"]["query"] = {}, options: CallOptions = {}): Promise<SessionRecord[]> {
    return ((await this.call("GET /v1/sessions", { query: filter, ...options })).document as { sessions: SessionRecord[] }).sessions;
  }

  /** What policy would say to an operation. Nothing is started. */
  async decide(ask: Routes["POST /v1/decide"]["body"], options: CallOptions = {}): Promise<Decision> {
    return (await this.call("POST /v1/decide", { body: ask, ...options })).document as Decision;
  }

  /** The event log of the caller, from behind `after` on, as long as it is followed. */
  async *events(options: { after?: number | bigint; signal?: AbortSignal } = {}): AsyncGenerator<Notice, void, undefined> {
    yield* notices(this.follow("GET /v1/events", { signal: options.signal }, position(options.after), sequence));
  }

  /** The receipt of an operation, by its id. */
  async receipt(intent: string, options: CallOptions = {}): Promise<Receipt> {
    return (await this.call("GET /v1/receipts/{intent_id}", { path: { intent_id: intent }, ...options })).document as Receipt;
  }

  /** Stores content; commands and file tools take it by the reference that comes back. */
  async putBlob(content: Uint8Array | string, options: CallOptions = {}): Promise<BlobResult> {
    const body = typeof content === "string" ? new TextEncoder().encode(content) : content;
    return (await this.settle("PUT /v1/blobs", { body, ...options })).payload!.blob!;
  }

  /** The content of a blob. */
  async blob(ref: string, options: CallOptions = {}): Promise<Uint8Array> {
    return (await this.call("GET /v1/blobs/{blob_ref}", { path: { blob_ref: ref }, ...options })).document as Uint8Array;
  }

  /** The tools of a profile (openai, anthropic, gemini or codex), as its models know them. */
  async tools(profile: string, options: CallOptions = {}): Promise<Tool[]> {
    return ((await this.call("GET /v1/tools", { query: { profile }, ...options })).document as { tools: Tool[] }).tools;
  }

  /** Closes the connections that nothing uses, so that the process can end. What is being asked is still answered. */
  close(): void {
    this.#transport.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** A mount as it is written on the command line. */
function mount(of: string | Mount): Mount {
  if (typeof of !== "string") return of;
  const [host, guest, mode = "ro", ...more] = of.split(":");
  if (!host || !guest || more.length > 0) throw new TypeError(`a mount is HOST:GUEST or HOST:GUEST:MODE, not ${of}`);
  return { host_path: resolve(host), guest_path: guest, mode };
}

/** Whether an error is a denial, of a certain code if one is given. */
export function isDenied(error: unknown, code?: Code): error is Denied {
  return error instanceof Denied && (code === undefined || error.code === code);
}

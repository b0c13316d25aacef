/** A supervisor, and the sessions that it has. */
import { resolve } from "node:path";
import { Denied, settled } from "./errors.js";
import { notices, position, sequence } from "./log.js";
import { defined } from "./members.js";
import type { BlobResult, Code, Decision, Local, Mount, Notice, Receipt, Routes, Scope, Session as SessionRecord, SessionOpen, Tool } from "./schema.js";
import { Session } from "./session.js";
import { Transport, type Ask, type CallOptions, type Reply } from "./transport.js";

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
  call<R extends keyof Routes>(route: R, ask: Ask<R> = {}): Promise<Reply<R>> {
    return this.#transport.call(route, ask);
  }

  /** Carries out an operation with effect: its receipt, when it took place. Otherwise Denied or Faulted is thrown. */
  async settle<R extends keyof Routes>(route: R, ask: Ask<R>): Promise<Receipt> {
    return settled((await this.#transport.call(route, ask)).document as Receipt);
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
   * Opens a session. It ends with `close`, at the end of an `await using` block, or when its time is over.
   *
   *     await using s = await new Stockade().open({ profile: "workspace", mounts: [".:/work:rw"], workdir: "/work" });
   */
  async open(options: OpenOptions = {}): Promise<Session> {
    const { mounts, root, workdir, env, network_mode, egress, hostname, key, signal, preferAsync: _, ...rest } = options;
    const local: Local = { ...defined({ root, workdir, env, network_mode, egress, hostname }) };
    if (mounts !== undefined) local.mounts = mounts.map(mount);
    const receipt = await this.settle("POST /v1/sessions", { body: { target: { local }, ...defined(rest) } as SessionOpen, key, signal });
    return new Session(this, receipt.session_id!, receipt);
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

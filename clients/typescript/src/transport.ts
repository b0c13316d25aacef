/**
 * HTTP over the unix socket. What is lost is asked again: reads as they are, operations with effect by their key. So each
 * has one, and takes place once, whatever happens to connections and to the supervisor.
 */
import * as http from "node:http";
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { ConnectionError, Denied, Faulted, GoneError, RequestError } from "./errors.js";
import { parse, stringify } from "./json.js";
import { routes, type Gone, type Receipt, type Routes, type Scope } from "./schema.js";
import { shape } from "./shape.js";

export interface TransportOptions {
  socket: string;
  scope: Scope | undefined;
  /** How long a supervisor that was there may be away at a time, in milliseconds. */
  patience: number;
  /** Told each time something broke off, before it is taken up again. */
  onLost: ((reason: Error) => void) | undefined;
}

/** What goes with a call. */
export interface CallOptions {
  /** The idempotency key of an operation with effect; one is made where there is none. */
  key?: string | undefined;
  /** Ends the waiting. Work goes on, unless the method says otherwise. */
  signal?: AbortSignal | undefined;
}

/** What a route takes. */
export type Ask<R extends keyof Routes> = {
  path?: Routes[R]["path"];
  query?: Routes[R]["query"];
  body?: Routes[R]["body"] | Record<string, unknown>;
} & CallOptions;

/** What `call` takes besides. */
export type Call<R extends keyof Routes> = Ask<R> & {
  /** Policy may want somebody's leave: do not wait for it. The answer is then 202 and a `Pending`, which has no outcome yet. */
  preferAsync?: boolean | undefined;
};

/** A document, and the status that it came with. */
export type Reply<R extends keyof Routes> = { status: number; document: Routes[R]["replies"][keyof Routes[R]["replies"]] };

type Query = Record<string, string | number | bigint | boolean | readonly string[] | undefined>;

const pauses = [20, 50, 100, 200, 400, 800, 1000];

const held = 1000; // milliseconds that a connection has to hold, to be a sign that the supervisor is there

/** What is over in a moment: the supervisor is about to be another one, or has no room. */
const passing = new Set<string>(["shutting_down", "too_many_connections", "too_many_requests"]);

export class Transport {
  readonly #options: TransportOptions;
  readonly #agent = new http.Agent({ keepAlive: true, maxFreeSockets: 64 });
  #known = false; // there was a connection once

  constructor(options: TransportOptions) {
    this.#options = options;
  }

  /** Closes the connections that nothing uses, and from here on each one when what uses it has ended. */
  close(): void {
    this.#agent.maxFreeSockets = 0;
    for (const socket of Object.values(this.#agent.freeSockets).flat()) socket?.destroy();
  }

  /**
   * Asks a route, and returns what it answers: a receipt, whatever its outcome, or what was asked for. A read that was denied is
   * Denied, and what never became an operation a RequestError. `sent` is told when something of the request may have arrived.
   */
  async call<R extends keyof Routes>(name: R, ask: Call<R>, sent?: () => void): Promise<Reply<R>> {
    const route = routes[name];
    const key = route.key ? (ask.key ?? randomUUID()) : undefined;
    const message = this.#message(name, ask, key);
    if (ask.preferAsync) message.headers["Prefer"] = "respond-async";
    return this.#patiently(key, ask.signal, route.key || route.repeatable, async (patience) => {
      const response = await this.#send(message, ask.signal, patience, sent);
      const status = response.statusCode ?? 0;
      const body = await collect(response, ask.signal);
      if (route.replies[status] === "bytes") return { status, document: body as never };
      const document = read(name, status, body);
      if (!route.key && status >= 400 && isReceipt(document)) throw refused(document); // in place of what was to be read
      return { status, document: document as never };
    });
  }

  /**
   * Follows a route: every event behind a position, until the stream ends in order. A stream that breaks off is taken up again
   * behind the last event that was taken.
   */
  async *follow<R extends keyof Routes, E>(name: R, ask: Ask<R>, after: string | undefined, cursor: (event: E) => string | undefined): AsyncGenerator<E, void, undefined> {
    const event = routes[name].event;
    if (event === undefined) throw new TypeError(`${name} is no stream`);
    const patience = new Patience(this.#options, undefined, ask.signal);
    for (let at = after; ; ) {
      let response: http.IncomingMessage | undefined;
      try {
        const query = at === undefined || at === "" ? ask.query : { ...ask.query, after: at };
        const message = this.#message(name, { ...ask, query } as Ask<R>, undefined);
        message.headers["Accept"] = "application/x-ndjson";
        response = await this.#send(message, ask.signal, patience);
        const status = response.statusCode ?? 0;
        if (!(response.headers["content-type"] ?? "").startsWith("application/x-ndjson")) {
          const document = read(name, status, await collect(response, ask.signal));
          if (status >= 400 && isReceipt(document)) throw refused(document);
          if (status === 410) throw new GoneError((document as { gone: Gone }).gone);
          throw new RequestError("internal_error", `${name} answered ${status} without a stream`, status);
        }
        for await (const line of lines(response)) {
          patience.restore();
          const document = shape(event, parse(line)) as E;
          const position = cursor(document);
          yield document;
          if (position !== undefined) at = position;
        }
        return;
      } catch (error) {
        ask.signal?.throwIfAborted();
        if (error instanceof RequestError && error.code === "gone") throw new GoneError({ from: at ?? "0" }, { cause: error }); // as older supervisors say it
        if (!isPassing(error)) throw error;
        await patience.next(error, this.#known);
      } finally {
        response?.destroy();
      }
    }
  }

  async #patiently<T>(key: string | undefined, signal: AbortSignal | undefined, repeatable: boolean, attempt: (patience: Patience) => Promise<T>): Promise<T> {
    const patience = new Patience(this.#options, key, signal);
    for (;;) {
      try {
        signal?.throwIfAborted();
        return await attempt(patience);
      } catch (error) {
        signal?.throwIfAborted();
        if (!isPassing(error)) throw error;
        if (!repeatable && error instanceof Lost && !error.unsent) throw new ConnectionError(error.message, key, { cause: error });
        await patience.next(error, this.#known);
      }
    }
  }

  #message<R extends keyof Routes>(name: R, ask: Ask<R>, key: string | undefined): Message {
    const space = name.indexOf(" ");
    const path = name.slice(space + 1).replace(/\{(\w+)\}/g, (_, parameter: string) => {
      const value = (ask.path as Record<string, string> | undefined)?.[parameter];
      if (value === undefined || value === "") throw new TypeError(`${name}: ${parameter} is missing`);
      return encodeURIComponent(value).replaceAll("%3A", ":");
    });
    const query = new URLSearchParams();
    for (const [parameter, value] of Object.entries((ask.query ?? {}) as Query)) {
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one !== undefined) query.append(parameter, String(one));
      }
    }
    const headers: Record<string, string> = {};
    let body: Uint8Array | string | undefined;
    if (ask.body instanceof Uint8Array) {
      body = ask.body;
      headers["Content-Type"] = "application/octet-stream";
    } else if (ask.body !== undefined) {
      body = stringify(ask.body);
      headers["Content-Type"] = "application/json";
    }
    if (key !== undefined) headers["Idempotency-Key"] = key;
    if (this.#options.scope !== undefined) headers["Stockade-Scope"] = ascii(stringify(this.#options.scope));
    return { method: name.slice(0, space), path: query.size > 0 ? `${path}?${query}` : path, headers, body };
  }

  /** Sends a request and returns the answer's head. Whatever keeps it from being one is Lost. */
  #send(message: Message, signal: AbortSignal | undefined, patience: Patience, sent?: () => void): Promise<http.IncomingMessage> {
    return new Promise((resolve, reject) => {
      const headers: Record<string, string | number> = { ...message.headers, Host: "stockade" };
      if (message.body !== undefined) headers["Content-Length"] = Buffer.byteLength(message.body);
      else if (message.method !== "GET") headers["Content-Length"] = 0;
      let since: number | undefined; // when the connection was there
      const request = http.request({
        socketPath: this.#options.socket,
        method: message.method,
        path: message.path,
        headers,
        agent: this.#agent,
        ...(signal === undefined ? {} : { signal }),
      });
      const connected = () => {
        since = performance.now();
        this.#known = true;
        sent?.();
      };
      request.on("socket", (socket) => void (socket.connecting ? socket.once("connect", connected) : connected()));
      request.on("response", (response) => {
        patience.waited(since);
        resolve(response);
      });
      request.on("error", (error) => {
        patience.waited(since);
        reject(new Lost(`${message.method} ${message.path}: ${error.message}`, since === undefined, error));
      });
      request.end(message.body);
    });
  }
}

interface Message {
  method: string;
  path: string;
  headers: Record<string, string>;
  body: Uint8Array | string | undefined;
}

/** A connection that ended too early, or that there was none. */
class Lost extends Error {
  constructor(
    message: string,
    readonly unsent: boolean,
    cause?: unknown,
  ) {
    super(message, { cause });
  }
}

/**
 * How long to go on asking. The clock begins with the first loss in a row, and again with every sign that the supervisor is there: a
 * command may run for hours, and its supervisor be replaced as often as it likes. One that has never been there is told at once.
 */
class Patience {
  #attempt = 0;
  #since: number | undefined; // the first loss in a row

  constructor(
    readonly options: TransportOptions,
    readonly key: string | undefined,
    readonly signal: AbortSignal | undefined,
  ) {}

  /** The supervisor is there. */
  restore(): void {
    this.#attempt = 0;
    this.#since = undefined;
  }

  /**
   * A request has waited for the head of its answer since then. Only a connection that held is a sign: a supervisor that ends by what it
   * is asked would be asked for ever.
   */
  waited(since: number | undefined): void {
    if (since !== undefined && performance.now() - since >= Math.min(held, this.options.patience)) this.restore();
  }

  /** Waits until it is time to ask again, or throws what there is to say instead. */
  async next(error: unknown, known: boolean): Promise<void> {
    const refused = error instanceof RequestError;
    if (refused && error.code === "idempotency_in_flight") this.#since = undefined; // it is there, and at work
    const now = performance.now();
    this.#since ??= now;
    const left = this.#since + this.options.patience - now;
    if (left <= 0 || (!refused && !known)) {
      throw refused ? error : new ConnectionError((error as Lost).message, this.key, { cause: error });
    }
    this.options.onLost?.(error as Error);
    const pause = Math.min(pauses[Math.min(this.#attempt++, pauses.length - 1)]!, left);
    await sleep(pause, undefined, this.signal === undefined ? {} : { signal: this.signal }).catch(() => this.signal?.throwIfAborted());
  }
}

function isPassing(error: unknown): boolean {
  return error instanceof Lost || (error instanceof RequestError && (passing.has(error.code) || error.code === "idempotency_in_flight"));
}

/** Reads the document of an answer by its status, or throws the error that it is. */
export function read(name: keyof Routes, status: number, body: Uint8Array): unknown {
  let document: unknown;
  try {
    document = parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch (cause) {
    throw new RequestError("internal_error", `${name} answered ${status} without a document: ${(cause as Error).message}`, status);
  }
  const members = (typeof document === "object" && document !== null ? document : {}) as Record<string, unknown>;
  if (status >= 400 && "error" in members && !("intent_id" in members)) {
    const { code, message } = members["error"] as { code: string; message: string };
    throw new RequestError(code, message, status);
  }
  const as = routes[name].replies[status === 410 ? 200 : status] ?? ("intent_id" in members && "outcome" in members ? "Receipt" : undefined);
  if (as === undefined) throw new RequestError("internal_error", `${name} answered ${status} with something else`, status);
  return shape(as, document);
}

function isReceipt(document: unknown): document is Receipt {
  return typeof document === "object" && document !== null && "intent_id" in document && "outcome" in document;
}

function refused(receipt: Receipt): Error {
  return receipt.outcome === "denied" ? new Denied(receipt) : new Faulted(receipt);
}

/** The whole body of an answer. */
async function collect(response: http.IncomingMessage, signal: AbortSignal | undefined): Promise<Uint8Array> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of response) chunks.push(chunk as Buffer);
  } catch (cause) {
    signal?.throwIfAborted();
    throw new Lost(`the answer broke off: ${(cause as Error).message}`, false, cause);
  }
  return new Uint8Array(Buffer.concat(chunks));
}

/** The lines of a body as they come. One that is not whole is the end of a connection. */
async function* lines(response: http.IncomingMessage): AsyncGenerator<string> {
  const pending: Buffer[] = [];
  const source = response[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  for (;;) {
    let next: IteratorResult<Buffer>;
    try {
      next = await source.next();
    } catch (cause) {
      throw new Lost(`the stream broke off: ${(cause as Error).message}`, false, cause);
    }
    if (next.done) break;
    let rest = next.value;
    for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
      pending.push(rest.subarray(0, end));
      yield Buffer.concat(pending).toString("utf8");
      pending.length = 0;
      rest = rest.subarray(end + 1);
    }
    if (rest.length > 0) pending.push(rest);
  }
  if (pending.length > 0) throw new Lost("the stream ended in a line", false);
}

/** JSON that fits into a header. */
function ascii(json: string): string {
  return json.replace(/[\u0080-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** A server in the place of a supervisor, which answers as a test has it. It can go, and come back. */
import { mkdtemp, rm } from "node:fs/promises";
import * as http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { parse, Stockade, type StockadeOptions } from "stockade";

export interface Asked {
  /** `POST /v1/exec` */
  what: string;
  key: string | undefined;
  headers: http.IncomingHttpHeaders;
  body: any;
}

/** What an answer is made with. `break` ends the connection without one. */
export interface Answer {
  send(status: number, document: unknown, type?: string): void;
  break(): void;
}

export class Fake {
  readonly asked: Asked[] = [];
  #server: http.Server | undefined;

  private constructor(
    readonly directory: string,
    readonly answer: (asked: Asked, answer: Answer) => unknown,
  ) {}

  static async start(answer: (asked: Asked, answer: Answer) => unknown): Promise<Fake> {
    const fake = new Fake(await mkdtemp(join(tmpdir(), "fake-")), answer);
    await fake.come();
    return fake;
  }

  async come(): Promise<void> {
    const server = http.createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      try {
        for await (const chunk of request) chunks.push(chunk as Buffer);
      } catch {
        return; // it was broken off
      }
      const body = Buffer.concat(chunks).toString();
      const asked = {
        what: `${request.method} ${request.url}`,
        key: request.headers["idempotency-key"] as string | undefined,
        headers: request.headers,
        body: body === "" ? undefined : parse(body),
      };
      this.asked.push(asked);
      await this.answer(asked, {
        send(status, document, type = "application/json") {
          response.writeHead(status, { "Content-Type": type });
          response.end(typeof document === "string" ? document : JSON.stringify(document));
        },
        break: () => void request.socket.destroy(),
      });
    });
    this.#server = server;
    await new Promise<void>((listening) => server.listen(join(this.directory, "sock"), listening));
  }

  /** Goes, as one that is killed: every connection ends. */
  async go(): Promise<void> {
    this.#server!.closeAllConnections();
    await new Promise((closed) => this.#server!.close(closed));
  }

  async connections(): Promise<number> {
    return new Promise((told, failed) => this.#server!.getConnections((error, n) => (error ? failed(error) : told(n))));
  }

  /** How often it was asked that. */
  count(what: string): number {
    return this.asked.filter((asked) => asked.what === what).length;
  }

  /** Waits until it is asked that, and returns it. A minute is longer than anything here takes. */
  async until(what: string, times = 1): Promise<Asked> {
    for (const began = performance.now(); this.count(what) < times; await sleep(5)) {
      if (performance.now() - began > 60_000) throw new Error(`it was not asked ${what}, but ${this.asked.map((asked) => asked.what).join()}`);
    }
    return this.asked.filter((asked) => asked.what === what)[times - 1]!;
  }

  client(options: StockadeOptions = {}): Stockade {
    return new Stockade({ socket: join(this.directory, "sock"), ...options });
  }

  async stop(): Promise<void> {
    await this.go();
    await rm(this.directory, { recursive: true });
  }
}

/** A fake for as long as a test takes. */
export async function fake(t: TestContext, answer: (asked: Asked, answer: Answer) => unknown): Promise<Fake> {
  const f = await Fake.start(answer);
  t.after(() => f.stop());
  return f;
}

/** The receipt of an operation that took place. */
export function done(op: string, more: object = {}): object {
  return { op, outcome: "ok", intent_id: "sha256:1", ...more };
}

/** Every golden request and reply of docs/api/routes.md, through the client and back: the same to the digit, and no route is without. */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import * as http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { codes, GoneError, parse, RequestError, routes, shapes, Stockade, stringify, Denied, Faulted, type Routes } from "stockade";

interface Golden {
  route: keyof Routes;
  target: string;
  headers: Record<string, string>;
  body: string;
  status: number;
  reply: string;
}

const docs = process.env["STOCKADE_TEST_DOCS"] ?? fileURLToPath(new URL("../../../docs", import.meta.url));
const routesFile = join(docs, "api", "routes.md");

/** The route that a request is of; one whose path is said to the letter comes before one with a name in it. */
function routeOf(method: string, target: string): keyof Routes {
  const path = new URL(target, "http://stockade").pathname;
  const of = Object.keys(routes)
    .filter((route) => new RegExp(`^${route.replace(/\{\w+\}/g, "[^/]+").replaceAll(".", "\\.")}$`).test(`${method} ${path}`))
    .sort((a, b) => a.split("{").length - b.split("{").length)[0];
  assert.ok(of, `${method} ${target}`);
  return of as keyof Routes;
}

/** What the document has: blocks of a request and of its reply in turn. */
function goldens(): Golden[] {
  const found: Golden[] = [];
  for (const section of readFileSync(routesFile, "utf8").split(/^## /m).slice(1)) {
    const blocks = [...section.matchAll(/^```http\n([^]*?)\n```$/gm)].map((m) => m[1]!);
    for (let i = 0; i < blocks.length; i += 2) {
      const [head, ...body] = blocks[i]!.split("\n\n");
      const [first, ...lines] = head!.split("\n");
      const [status, ...reply] = blocks[i + 1]!.split("\n\n");
      found.push({
        route: routeOf(first!.slice(0, first!.indexOf(" ")), first!.slice(first!.indexOf(" ") + 1)),
        target: first!.slice(first!.indexOf(" ") + 1),
        headers: Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf(":")).toLowerCase(), line.slice(line.indexOf(":") + 2)])),
        body: body.join("\n\n"),
        status: Number(status!.split(" ")[0]),
        reply: reply.join("\n\n"),
      });
    }
  }
  return found;
}

/** What a client is asked, so that it sends the request. */
function ask(g: Golden) {
  const url = new URL(g.target, "http://stockade");
  const template = g.route.slice(g.route.indexOf(" ") + 1).split("/");
  const path: Record<string, string> = {};
  url.pathname.split("/").forEach((part, i) => {
    const name = /^\{(\w+)\}$/.exec(template[i] ?? "")?.[1];
    if (name !== undefined) path[name] = decodeURIComponent(part);
  });
  const as = routes[g.route].body;
  const body = g.body === "" ? undefined : as === "bytes" ? new TextEncoder().encode(g.body) : exactly(as!, parse(g.body));
  return { path, query: Object.fromEntries(url.searchParams), body, key: g.headers["idempotency-key"] };
}

/** A document as the types have it: each member that the schema names so is a bigint, or bytes. */
function exactly(name: string, document: unknown): unknown {
  const members = shapes[name];
  if (members === undefined || typeof document !== "object" || document === null) return document;
  const out: Record<string, unknown> = { ...document };
  for (const [member, kind] of Object.entries(members)) {
    if (!(member in out)) continue;
    const one = (kind: string, value: unknown): unknown => {
      if (kind.startsWith("[]")) return (value as unknown[]).map((v) => one(kind.slice(2), v));
      if (kind.startsWith("{}")) return Object.fromEntries(Object.entries(value as object).map(([k, v]) => [k, one(kind.slice(2), v)]));
      if (kind === "ns") return BigInt(value as number | bigint);
      if (kind === "bytes") return new Uint8Array(Buffer.from(value as string, "base64"));
      return exactly(kind, value);
    };
    out[member] = one(kind, out[member]);
  }
  return out;
}

describe("the contract", { skip: !existsSync(routesFile) && "docs/api is not here" }, () => {
  let directory: string;
  let server: http.Server;
  let golden: Golden;
  let got: { method: string; url: string; headers: http.IncomingHttpHeaders; body: string };

  before(async () => {
    directory = await mkdtemp(join(tmpdir(), "golden-"));
    server = http.createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      got = { method: request.method!, url: request.url!, headers: request.headers, body: Buffer.concat(chunks).toString() };
      const stream = request.headers.accept;
      response.writeHead(golden.status, { "Content-Type": stream ?? "application/json" });
      response.end(stream === undefined ? golden.reply : `${golden.reply}\n`);
    });
    await new Promise<void>((listening) => server.listen(join(directory, "sock"), listening));
  });
  after(async () => {
    server.closeAllConnections();
    server.close();
    await rm(directory, { recursive: true });
  });

  const all = existsSync(routesFile) ? goldens() : [];

  test("has goldens of every route, replies and errors", () => {
    const covered = new Set(all.map((g) => g.route));
    assert.deepEqual(Object.keys(routes).filter((route) => !covered.has(route as keyof Routes)), ["GET /v1/openapi.json"]);
    assert.deepEqual([...covered].filter((route) => routes[route] === undefined), []);
    assert.ok(all.length >= 2 * covered.size - 2, `${all.length} goldens`);
  });

  for (const [i, g] of all.entries()) {
    test(`${i + 1}: ${g.route} ${g.status}`, async () => {
      golden = g;
      const scope = g.headers["stockade-scope"];
      const stockade = new Stockade({ socket: join(directory, "sock"), scope: scope === undefined ? undefined : (parse(scope) as never), patience: 0 });
      const { path, query, body, key } = ask(g);
      try {
        if (g.headers["accept"] === "application/x-ndjson") {
          const lines: string[] = [];
          for await (const event of stockade.follow(g.route, { path, query } as never, undefined, () => undefined)) lines.push(stringify(event));
          assert.equal(lines.join("\n"), g.reply);
        } else if (g.headers["accept"] === "text/event-stream") {
          const data = [...g.reply.matchAll(/^data: (.*)$/gm)].map((m) => m[1]!);
          assert.ok(data.length > 0);
          for (const line of data) assert.equal(stringify(exactly(routes[g.route].event!, parse(line))), line);
          await stockade.call(g.route, { path, query, body, key } as never).catch(() => undefined);
        } else {
          const { status, document } = await stockade.call(g.route, { path, query, body, key } as never);
          assert.equal(status, g.status);
          const as = routes[g.route].replies[status] ?? "Receipt";
          if (as === "bytes") {
            assert.equal(Buffer.from(document as Uint8Array).toString(), g.reply);
          } else {
            assert.deepEqual(document, exactly(as, parse(g.reply)), "every time is a bigint, and bytes are bytes");
            assert.equal(stringify(document), stringify(parse(g.reply)));
          }
        }
      } catch (error) {
        if (error instanceof RequestError) {
          const { error: said } = parse(g.reply) as { error: { code: string; message: string } };
          assert.deepEqual([error.code, error.message, error.status], [said.code, `${said.code}: ${said.message}`, g.status]);
          assert.ok(codes[error.code] !== undefined, `${error.code} is not in the contract`);
        } else if (error instanceof GoneError) {
          assert.deepEqual([g.status, error.gone], [410, (parse(g.reply) as { gone: unknown }).gone]);
        } else if (error instanceof Denied || error instanceof Faulted) {
          assert.equal(stringify(error.receipt), stringify(parse(g.reply)));
        } else {
          throw error;
        }
      } finally {
        stockade.close();
      }
      assert.equal(got.method, g.route.slice(0, g.route.indexOf(" ")));
      const [sent, meant] = [new URL(got.url, "http://stockade"), new URL(g.target, "http://stockade")];
      assert.equal(sent.pathname, meant.pathname);
      assert.deepEqual([...sent.searchParams], [...meant.searchParams]);
      assert.equal(routes[g.route].body === "bytes" || g.body === "" ? got.body : stringify(parse(got.body)), routes[g.route].body === "bytes" ? g.body : g.body && stringify(parse(g.body)));
      assert.equal(got.headers["stockade-scope"], scope);
      if (key !== undefined) assert.equal(got.headers["idempotency-key"], key);
      assert.equal("idempotency-key" in got.headers, routes[g.route].key, "operations with effect have a key, and nothing else has");
    });
  }
});

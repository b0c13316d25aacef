/** What the client does when connections and supervisors come and go, and with answers that are no receipts. The supervisor is a fake. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ConnectionError, Execution, GoneError, RequestError, Session, Stockade, type Call, type Receipt } from "stockade";
import { done, fake, type Answer } from "./fake.js";

describe("patience", () => {
  test("begins with the loss: what takes longer than it is asked again", async (t) => {
    const f = await fake(t, async (asked, answer) => {
      if (f.count(asked.what) > 3) return answer.send(200, done("host.session.close"));
      await sleep(1200); // each connection is lost when it has held for longer than patience
      await f.go();
      await sleep(100);
      await f.come();
    });
    assert.equal((await f.client({ patience: 1000 }).session("s-1").close()).outcome, "ok");
    assert.equal(f.asked.length, 4);
    assert.equal(new Set(f.asked.map((asked) => asked.key)).size, 1, "by one key");
  });

  test("is there from the first call on", async (t) => {
    const f = await fake(t, async (asked, answer) => {
      if (f.asked.length > 1) return answer.send(200, done("host.session.close"));
      await f.go();
      await sleep(200);
      await f.come();
    });
    assert.equal((await f.client().session("s-1").close()).outcome, "ok");
  });

  test("ends where every connection breaks off, and where nobody is", async (t) => {
    const f = await fake(t, (_, answer) => answer.break());
    const breaks = f.client({ patience: 300 });
    await assert.rejects(breaks.sessions(), ConnectionError);
    assert.ok(f.asked.length > 1);
    await f.go();
    let lost = 0;
    await assert.rejects(f.client({ onLost: () => void lost++ }).sessions(), ConnectionError);
    assert.equal(lost, 0, "one that was never there is told at once");
    await assert.rejects(breaks.sessions(), ConnectionError);
    await f.come();
  });

  test("ends where there is no room", async (t) => {
    const f = await fake(t, (_, answer) => answer.send(503, { error: { code: "too_many_requests", message: "later" } }));
    await assert.rejects(f.client({ patience: 200 }).sessions(), (e: RequestError) => e instanceof RequestError && e.code === "too_many_requests");
  });

  test("of a stream begins anew with each line", async (t) => {
    const f = await fake(t, async (asked, answer) => {
      if (f.asked.length === 8) return answer.send(200, '{"kind":"SESSION_STATE","seq":1}\n', "application/x-ndjson");
      await sleep(100);
      answer.send(200, '{"kind":"keepalive"}\n{"cut', "application/x-ndjson");
    });
    const seen: unknown[] = [];
    for await (const notice of f.client({ patience: 400 }).events()) seen.push(notice.seq);
    assert.deepEqual(seen, [1]);
  });
});

describe("close", () => {
  for (const how of ["close", "using"] as const) {
    test(`lets end what is being asked: ${how}`, async (t) => {
      let answered: Answer | undefined;
      const f = await fake(t, (asked, answer) => (asked.what === "GET /v1/sessions" ? answer.send(200, { sessions: [] }) : void (answered = answer)));
      let closing: Promise<Receipt>;
      {
        using stockade = f.client({
          onLost: (reason) => {
            throw reason;
          },
        });
        await Promise.all([stockade.sessions(), stockade.sessions()]);
        closing = stockade.session("s-1").close();
        await f.until("POST /v1/close");
        if (how === "close") stockade.close();
      }
      while ((await f.connections()) > 1) await sleep(5); // those that nothing used are closed
      answered!.send(200, done("host.session.close"));
      assert.equal((await closing).outcome, "ok");
      assert.equal(f.count("POST /v1/close"), 1);
      while ((await f.connections()) > 0) await sleep(5); // and none is kept from here on
    });
  }
});

describe("what has not ended", () => {
  const pending = { intent_id: "sha256:1", exec_id: "", session_id: "s-1", state: "queued", cursor: "0.0.0", approval_id: "a-1" };

  test("is told by call, to whoever would rather not wait", async (t) => {
    const f = await fake(t, (asked, answer) => (asked.headers["prefer"] === "respond-async" ? answer.send(202, pending) : answer.send(200, done("host.workspace.commit"))));
    const stockade = f.client();
    const ask = { path: { session_id: "s-1" }, body: {} };
    const { status, document } = await stockade.call("POST /v1/sessions/{session_id}/commit", { ...ask, preferAsync: true });
    assert.equal(status, 202);
    assert.ok(!("outcome" in document));
    assert.deepEqual([document.approval_id, document.state], ["a-1", "queued"]);
    assert.equal((await stockade.session("s-1").commit()).outcome, "ok");
  });

  test("is nothing that a method would have asked for", async (t) => {
    const f = await fake(t, (_, answer) => answer.send(202, pending));
    const stockade = f.client();
    // @ts-expect-error it is of call alone
    await assert.rejects(stockade.session("s-1").commit({}, { preferAsync: true }), TypeError);
    // @ts-expect-error likewise
    await assert.rejects(stockade.settle("POST /v1/close", { body: { session_id: "s-1" }, preferAsync: true }), TypeError);
    const asked: Call<"POST /v1/close"> = { body: { session_id: "s-1" }, preferAsync: true };
    assert.equal((await stockade.call("POST /v1/close", asked)).status, 202);
  });
});

describe("abort", () => {
  const made: [string, string, (stockade: Stockade, signal: AbortSignal) => Promise<unknown>, status: number, document: object, end: string, body: object][] = [
    ["a command", "POST /v1/exec", (c, signal) => c.session("s-1").exec(["true"], { signal }), 202, { exec_id: "x-1", intent_id: "sha256:1", session_id: "s-1", state: "running", cursor: "0.0.0" }, "POST /v1/executions/x-1/cancel", {}],
    ["a shell", "POST /v1/shells", (c, signal) => c.session("s-1").shell({ signal }), 202, { exec_id: "x-1", intent_id: "sha256:1" }, "POST /v1/executions/x-1/cancel", {}],
    ["a session", "POST /v1/sessions", (c, signal) => c.open({ signal }), 200, done("host.session.open", { session_id: "s-1" }), "POST /v1/close", { session_id: "s-1", mode: "force" }],
    ["a session that waits for leave", "POST /v1/sessions", (c, signal) => c.open({ signal }), 202, { intent_id: "sha256:1", approval_id: "a-1", state: "queued", cursor: "0.0.0" }, "POST /v1/approvals/a-1/deny", {}],
  ];
  for (const [what, route, make, status, document, end, body] of made) {
    test(`before anything was sent starts nothing: ${what}`, async (t) => {
      const f = await fake(t, (_, answer) => answer.send(200, { sessions: [] }));
      const control = new AbortController();
      const stockade = f.client({ onLost: () => control.abort() });
      await stockade.sessions();
      stockade.close();
      await f.go();
      await assert.rejects(make(stockade, control.signal), { name: "AbortError" });
      await f.come();
      await sleep(1500); // longer than it ever waited between two attempts
      assert.equal(f.count(route), 0);
    });

    test(`leaves nothing behind: ${what}`, async (t) => {
      const f = await fake(t, (asked, answer) => {
        if (asked.what !== route) answer.send(200, done("host.cancel", { payload: { control: { status: "canceled" } } }));
        else if (f.count(route) > 1) answer.send(status, document); // the first is never answered
      });
      const control = new AbortController();
      const making = make(f.client(), control.signal);
      const first = await f.until(route);
      control.abort();
      await assert.rejects(making, { name: "AbortError" });
      const again = await f.until(route, 2);
      assert.deepEqual([again.key, again.body], [first.key, first.body], "the same again, by its key");
      assert.deepEqual((await f.until(end)).body, body);
    });
  }

  test("leaves alone what has ended", async (t) => {
    const f = await fake(t, (asked, answer) => void (f.count(asked.what) > 1 && answer.send(403, { op: "host.session.open", outcome: "denied", intent_id: "sha256:1", session_id: "s-1" })));
    const control = new AbortController();
    const opening = f.client().open({ signal: control.signal });
    await f.until("POST /v1/sessions");
    control.abort();
    await assert.rejects(opening, { name: "AbortError" });
    await f.until("POST /v1/sessions", 2);
    await sleep(200);
    assert.equal(f.asked.length, 2);
  });
});

describe("what is not kept any more", () => {
  for (const [says, document, gone] of [
    ["a page", { gone: { from: "3", first_available: "12" } }, { from: "3", first_available: "12" }],
    ["a code", { error: { code: "gone", message: "events up to 12 are not kept any more" } }, { from: "3" }],
  ] as const) {
    test(`is a GoneError of streams, said by ${says}`, async (t) => {
      const f = await fake(t, (_, answer) => answer.send(410, document));
      const stockade = f.client();
      const streams = [
        stockade.events({ after: 3 }),
        stockade.session("s-1").events({ after: 3 }),
        stockade.follow("GET /v1/intents/{intent_id}/frames", { path: { intent_id: "sha256:1" } }, "3", (event) => event.cursor),
      ];
      for (const stream of streams) {
        await assert.rejects(stream.next(), (e: GoneError) => {
          assert.ok(e instanceof GoneError, String(e));
          assert.deepEqual([e.code, e.gone], ["gone", gone]);
          return true;
        });
      }
    });
  }

  test("is passed over by who waits for the end", async (t) => {
    const f = await fake(t, (asked, answer) => {
      const after = new URL(asked.what.slice(4), "http://stockade").searchParams.get("after");
      if (after === "0") return answer.send(410, { frames: null, gone: { from: "0", first_available: "7" } });
      answer.send(200, { frames: [{ seq: 8 }], ...(after === "8" && { receipt: done("host.exec") }) });
    });
    const x = new Execution(new Session(f.client(), "s-1"), { exec_id: "x-1", intent_id: "sha256:1" });
    assert.equal((await x.wait()).outcome, "ok");
  });
});

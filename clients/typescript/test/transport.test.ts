/** What the client does when connections and supervisors come and go, and with answers that are no receipts. The supervisor is a fake. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ConnectionError, Execution, GoneError, RequestError, Session, type Receipt } from "stockade";
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

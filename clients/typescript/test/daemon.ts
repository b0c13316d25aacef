/** A supervisor of the tests' own, with the commands from STOCKADE_BIN. It can be killed, and started again on its state. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, open, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Stockade, type StockadeOptions } from "stockade";

export const bin = process.env["STOCKADE_BIN"];

/** Why there is no supervisor to test with; false where there is one. */
export const without = bin === undefined ? "STOCKADE_BIN says where the commands are" : process.getuid!() !== 0 && "needs root: the runner builds namespaces";

export class Daemon {
  #process: ChildProcess | undefined;

  /** `directory` is the tests'; `sv` in it has the socket and the state, and nothing else. */
  private constructor(readonly directory: string) {}

  get socket(): string {
    return join(this.directory, "sv", "sock");
  }

  static async start(): Promise<Daemon> {
    const daemon = new Daemon(await mkdtemp(join(process.env["STOCKADE_TEST_DIR"] ?? tmpdir(), "ts-")));
    await mkdir(join(daemon.directory, "sv"));
    await daemon.start();
    return daemon;
  }

  async start(): Promise<void> {
    const log = await open(join(this.directory, "log"), "a");
    const child = spawn(join(bin!, "stockaded"), ["--state", join(this.directory, "sv", "state"), "--socket", this.socket], {
      stdio: ["ignore", "pipe", log.fd],
      env: { PATH: process.env["PATH"] },
    });
    this.#process = child;
    const ended = once(child, "exit").then(() => "");
    const ready = once(child.stdout!, "data").then(([line]) => String(line));
    await log.close();
    if ((await Promise.race([ready, ended])) !== "ready\n") throw new Error(`stockaded did not become ready:\n${await this.log()}`);
  }

  /** Kills it, as a crash would: what it has in flight stays where it is. */
  async kill(): Promise<void> {
    const gone = once(this.#process!, "exit");
    this.#process!.kill("SIGKILL");
    await gone;
  }

  /** Stops it in order, and takes its directory away. */
  async stop(): Promise<void> {
    if (this.#process!.exitCode === null && this.#process!.signalCode === null) {
      const gone = once(this.#process!, "exit");
      this.#process!.kill("SIGTERM");
      await gone;
    }
    if (process.env["STOCKADE_TEST_DIR"] === undefined) await rm(this.directory, { recursive: true });
  }

  log(): Promise<string> {
    return readFile(join(this.directory, "log"), "utf8");
  }

  client(options: StockadeOptions = {}): Stockade {
    return new Stockade({ socket: this.socket, ...options });
  }
}

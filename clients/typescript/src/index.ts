/// <reference lib="esnext.disposable" preserve="true" />
/**
 * Stockade from Node: sessions, commands, shells, files and tools over the supervisor's unix socket.
 *
 *     import { Stockade } from "stockade";
 *     const stockade = new Stockade();
 *     const text = await stockade.within({ profile: "workspace", mounts: [".:/work:rw"], workdir: "/work" },
 *       async (s) => (await s.exec(["make", "test"])).stdout);
 */
export { Stockade, isDenied, type OpenOptions, type StockadeOptions } from "./client.js";
export { Session, type ExecOptions, type ShellOptions } from "./session.js";
export { Execution, Finished, type Written } from "./execution.js";
export { Shell } from "./shell.js";
export { Files, type Found } from "./files.js";
export { ConnectionError, Denied, Faulted, FileError, GoneError, OperationError, RequestError, StockadeError } from "./errors.js";
export { parse, stringify, type Json } from "./json.js";
export type { Ask, Call, CallOptions, Reply } from "./transport.js";
export * from "./schema.js";

/** What goes wrong, by what can be done about it. Codes are those of docs/api/errors.md, and those of policies. */
import { codes, type Code, type Deny, type Gone, type Receipt } from "./schema.js";

/** Everything that this package throws of itself has a code. */
export class StockadeError extends Error {
  constructor(
    readonly code: Code,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The request never became an operation: it does not decode, names nothing, or there is no room for it. There is no record of it. */
export class RequestError extends StockadeError {
  constructor(
    code: Code,
    message: string,
    readonly status: number,
  ) {
    super(code, `${code}: ${message}`);
  }
}

/** The position in a stream is not kept any more. */
export class GoneError extends StockadeError {
  constructor(
    /** What was asked for, and the first position that there is, where that is known. */
    readonly gone: Gone,
    options?: ErrorOptions,
  ) {
    const first = gone.first_available === undefined ? "" : `; ${gone.first_available} is the first position that is`;
    super("gone", `gone: what followed ${gone.from} is not kept any more${first}`, options);
  }
}

/** An operation that was recorded and did not take place. */
export abstract class OperationError extends StockadeError {
  constructor(
    readonly receipt: Receipt,
    message: string,
  ) {
    super(receipt.error_code ?? receipt.outcome, message);
  }

  /** The id of the operation: `stockade policy why` and `stockade receipts` take it. */
  get intent(): string {
    return this.receipt.intent_id;
  }
}

/** Policy, or the operator's ceiling, said no. Nothing was started. */
export class Denied extends OperationError {
  /** Every reason; the first is the one that the error tells of. */
  readonly reasons: readonly Deny[];
  /** What was refused: `mount:/etc`. */
  readonly object: string | undefined;
  /** The rule that spoke, `file:line package.rule`, where the record names it. */
  readonly rule: string | undefined;
  /** What the code means, and how to find out what would help. */
  readonly hint: string;

  constructor(receipt: Receipt) {
    const reasons = receipt.deny ?? [];
    const first = reasons[0];
    super(receipt, [`${receipt.op} denied`, receipt.error_code, first?.subject, first?.message ?? receipt.error_message].filter(Boolean).join(": "));
    this.reasons = reasons;
    this.object = first?.subject;
    this.rule = speaking(receipt.policy?.rules);
    this.hint = [codes[this.code]?.meaning, `\`stockade policy why ${this.intent}\` says what would help.`].filter(Boolean).join(" ");
  }
}

/** Of the rules that were evaluated, the one that denies; the decision itself where none is called so. */
function speaking(rules: readonly string[] = []): string | undefined {
  return rules.find((rule) => /\.deny\w*$/.test(rule)) ?? rules.find((rule) => /\.decision$/.test(rule)) ?? rules[0];
}

/**
 * The operation could not be carried out. `supervisor_restarted` and `lost` say that it was cut off: whether it had an effect
 * the message says, where it is known.
 */
export class Faulted extends OperationError {
  constructor(receipt: Receipt) {
    super(receipt, `${receipt.op}: ${receipt.error_code ?? "faulted"}: ${receipt.error_message ?? ""}`);
  }
}

/** A file tool answered, and the answer is no: there is no such file, it has changed, the text is not in it. Nothing was changed. */
export class FileError extends OperationError {
  override readonly code: Code;

  constructor(
    receipt: Receipt,
    /** `not_found`, `conflict`, `ambiguous`, `reject`, `forbidden`, … */
    readonly status: string,
    code: Code | undefined,
    message: string | undefined,
    path: string,
  ) {
    super(receipt, `${receipt.op} ${path}: ${code ?? status}${message ? `: ${message}` : ""}`);
    this.code = code ?? status;
  }
}

/**
 * The supervisor could not be reached, or stayed away for longer than the client is patient. Of an operation with effect it is
 * not known whether it took place; asked again with the same key, it takes place once.
 */
export class ConnectionError extends StockadeError {
  constructor(
    message: string,
    readonly key: string | undefined,
    options?: ErrorOptions,
  ) {
    super("connection_lost", message, options);
  }
}

/** The receipt of what took place; otherwise the error that it is. */
export function settled(receipt: Receipt): Receipt {
  switch (receipt.outcome as string | undefined) {
    case undefined:
      throw new TypeError("this has not ended, and has no receipt yet: `call` tells of what goes on");
    case "ok":
      return receipt;
    case "denied":
      throw new Denied(receipt);
  }
  throw new Faulted(receipt);
}

/** What this machine cannot do, and the tests do without. */
export function degraded(): string[] {
  return (process.env["STOCKADE_TEST_DEGRADED"] ?? "").split(",").filter(Boolean);
}

package supervisor

import (
	"context"

	"github.com/stockade-dev/stockade/rego"
)

// Policy is one revision of a policy, ready to be asked: a [rego.Engine] of this process, or processes that hold
// one each. A failure is a denial: Decide has no error result.
type Policy interface {
	Decide(ctx context.Context, entrypoint string, in rego.Input) rego.Decision
	Digest() string
	Defines(entrypoint string) bool
	Close() // when the last decision has been given
}

package supervisor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// A cursor is how far a reader of an execution has come: the last frame that it has, and how
// many bytes of each stream. It means the same to every supervisor that the state directory ever
// has.
type cursor struct {
	frame, stdout, stderr int64
}

func (c cursor) String() string { return fmt.Sprintf("%d.%d.%d", c.frame, c.stdout, c.stderr) }

// parseCursor reads a cursor; "" is the beginning.
func parseCursor(text string) (cursor, *api.Error) {
	var c cursor
	if text == "" {
		return c, nil
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return c, invalidCursor(text)
	}
	for i, into := range []*int64{&c.frame, &c.stdout, &c.stderr} {
		n, err := strconv.ParseInt(parts[i], 10, 64)
		if err != nil || n < 0 || parts[i] != strconv.FormatInt(n, 10) {
			return c, invalidCursor(text)
		}
		*into = n
	}
	return c, nil
}

func invalidCursor(text string) *api.Error {
	return api.Errorf(api.CodeInvalidCursor, "%.40q is not a cursor of this stream", text)
}

// offset is the place of the cursor in one stream.
func (c *cursor) offset(name string) *int64 {
	if name == "stdout" {
		return &c.stdout
	}
	return &c.stderr
}

// parseSeq reads the cursor of a list that is numbered; "" is the beginning.
func parseSeq(text string) (int64, *api.Error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, invalidCursor(text)
	}
	return n, nil
}

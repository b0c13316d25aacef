package supervisor

import (
	"slices"
	"sync"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// commandsAt is the command whose output ended at an offset, or "". Where it is not known whether one did, as of an empty line, whose
// status reads the same, known is false. Offsets are asked for in their order.
type commandsAt func(off int64) (command string, known bool, err error)

// endings finds in the frames of a shell where its commands ended. It reads them forwards, and no further than it is asked.
type endings struct {
	read   func(after int64) ([]api.Frame, error)
	passed int64       // the frame up to which all tell of what is before the offsets that were asked for
	ahead  []api.Frame // those after it that have been read
}

func (e *endings) at(off int64) (command string, known bool, err error) {
	for {
		for ; len(e.ahead) > 0; e.ahead = e.ahead[1:] {
			ended, command := endingOf(&e.ahead[0])
			switch {
			case ended == off && command != "":
				return command, true, nil
			case ended > off:
				return "", false, nil
			}
			e.passed = e.ahead[0].Seq
		}
		if e.ahead, err = e.read(e.passed); err != nil || len(e.ahead) == 0 {
			return "", false, err
		}
	}
}

// bookmarks say how far the frames of a shell were read with its output, of the pages that were read last: who reads a long
// transcript page by page would otherwise have every page begin at the first frame. Without one a page costs that, and
// says the same.
type bookmarks struct {
	mu   sync.Mutex
	kept []bookmark
	next int // of kept, to be overwritten
}

type bookmark struct {
	exec           string
	offset, passed int64
}

const keptBookmarks = 256

// before is the frame up to which nothing is told of the output after an offset, as far as that is known.
func (b *bookmarks) before(exec string, offset int64) (passed int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.kept {
		if m := &b.kept[i]; m.exec == exec && m.offset <= offset {
			passed = max(passed, m.passed)
		}
	}
	return passed
}

func (b *bookmarks) put(m bookmark) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case m.passed == 0 || slices.Contains(b.kept, m):
	case len(b.kept) < keptBookmarks:
		b.kept = append(b.kept, m)
	default:
		b.kept[b.next] = m
		b.next = (b.next + 1) % keptBookmarks
	}
}

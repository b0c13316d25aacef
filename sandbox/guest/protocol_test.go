package guest

import (
	"reflect"
	"syscall"
	"testing"
	"time"
)

// members are one filled value of each, by kind.
var members = map[byte]func() member{
	kindSetup: func() member {
		return &Setup{UID: 1, GID: 2, Groups: []uint32{3, 4}, Capabilities: 1 << 40, Umask: 0o22, OOMScoreAdj: -5,
			Rlimits: []Rlimit{{7, 8, 9}}, Filter: []byte("12345678"), Report: true,
			Landlock: []Access{{"/", false, false}, {"/w", true, false}, {"/dev", false, true}}, LandlockABI: 6, Proof: "/p", Workdir: "/w"}
	},
	kindSpawn: func() member {
		return &spawnFrame{Command{Argv: []string{"a", ""}, Env: []string{"B=c"}, Cwd: "/d"}, true, true, true}
	},
	kindCommand: func() member {
		return &commandFrame{Command{Argv: []string{"a", ""}, Env: []string{"B=c"}, Cwd: "/d", Rlimits: []Rlimit{{7, 8, 9}}, Canary: []string{"mount"}}}
	},
	kindReady:   func() member { return &readyFrame{7} },
	kindSignal:  func() member { return &signalFrame{1 << 50, 15} },
	kindFailed:  func() member { return &Error{StageClone, "clone", syscall.EAGAIN} },
	kindStarted: func() member { return &startedFrame{42} },
	kindExited:  func() member { return &Exit{9, time.Second, 1 << 30} },
}

func empty(m member) member {
	return reflect.New(reflect.TypeOf(m).Elem()).Interface().(member)
}

func TestRoundTrip(t *testing.T) {
	for kind, filled := range members {
		want := filled()
		b := encode(kind, 77, want)
		k, call, rest := head(b)
		got := empty(want)
		if err := decode(rest, got); err != nil || k != kind || call != 77 || !reflect.DeepEqual(got, want) {
			t.Errorf("kind %d: got %d, %d, %+v, %v", kind, k, call, got, err)
		}
		for cut := range len(b) {
			if _, _, rest := head(b[:cut]); decode(rest, empty(want)) == nil {
				t.Errorf("kind %d: accepted with %d of %d bytes", kind, cut, len(b))
			}
		}
		if _, _, rest := head(append(b, 0)); decode(rest, empty(want)) == nil {
			t.Errorf("kind %d: accepted with a byte too many", kind)
		}
	}
}

// Decoding never panics, never allocates beyond what the message can hold, and what it accepts has one form.
func FuzzDecode(f *testing.F) {
	for kind, filled := range members {
		f.Add(encode(kind, 1, filled()))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, call, rest := head(b)
		filled := members[kind]
		if filled == nil {
			return
		}
		m := empty(filled())
		if decode(rest, m) != nil {
			return
		}
		if again := encode(kind, call, m); string(again) != string(b) {
			t.Errorf("%x decodes to %+v, which encodes to %x", b, m, again)
		}
	})
}

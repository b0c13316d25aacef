package seccomp

import (
	"slices"
	"strings"
	"sync"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// Verdict is what a profile says of one call.
type Verdict struct {
	Syscall string     // its name; "" for a number that nobody has named
	Allowed bool       // with these arguments
	Errno   unix.Errno // the answer when it is refused
	Rule    string     // the title of the row that decides; "" when no row names the call
	Object  string     // of a refusal that an argument decided, what that was: "AF_PACKET"; "" of any other
	Least   string     // the narrowest profile that allows it with these arguments; "" when none does
}

// Lookup says what a profile answers to a call of this machine's architecture: the same as
// its program, from the same rows. It reports whether a row of the profile names the call;
// what no row names is refused with ENOSYS. An unknown profile allows nothing.
func Lookup(profile string, nr int, args [6]uint64) (Verdict, bool) {
	v := Verdict{Syscall: nameOf(nr), Errno: unix.ENOSYS}
	r, known := byNumber()[profile][nr]
	if known {
		v.Rule = r.title
		if v.Allowed, v.Errno = r.allows(args), 0; !v.Allowed {
			v.Errno, v.Object = r.answer(), r.object(v.Syscall, args)
		}
	}
	for _, p := range slices.Backward(Profiles) {
		if r, ok := byNumber()[p][nr]; ok && r.allows(args) {
			v.Least = p
			break
		}
	}
	return v, known
}

// allows is what the stages of a program come to.
func (r row) allows(args [6]uint64) bool {
	holds := func(when []condition) bool {
		return !slices.ContainsFunc(when, func(c condition) bool { return args[c.arg]&c.mask != c.value })
	}
	switch {
	case slices.ContainsFunc(r.unless, holds):
		return false
	case r.only == nil:
		return r.verdict == allowed
	}
	return slices.ContainsFunc(r.only, holds)
}

// byNumber are the rows of each profile by the numbers that they name.
var byNumber = sync.OnceValue(func() map[string]map[int]row {
	m := make(map[string]map[int]row)
	for _, profile := range Profiles {
		m[profile] = make(map[int]row)
		for _, r := range rows {
			if !r.in(profile) {
				continue
			}
			for name := range strings.FieldsSeq(r.calls) {
				// A name that has no number is an error of Compile.
				if n, err := number(name); err == nil {
					m[profile][int(n)] = r
				}
			}
		}
	}
	return m
})

// nameOf is the opposite of number.
func nameOf(nr int) string {
	if name, err := libseccomp.ScmpSyscall(nr).GetName(); err == nil {
		return name
	}
	for name, n := range young {
		if n == nr {
			return name
		}
	}
	return ""
}

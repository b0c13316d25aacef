package relay

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The filter is for good: the test is a child of its own.
func TestMain(m *testing.M) {
	switch os.Getenv("RELAY_TEST_FILTER") {
	case "on":
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			fmt.Println("no_new_privs:", err)
		}
		if err := restrict(); err != nil {
			fmt.Println("restrict:", err)
		}
		fallthrough
	case "off":
		attempts()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func attempts() {
	say := func(what string, err error) { fmt.Printf("%s: %v\n", what, err) }
	_, err := os.ReadFile("/etc/hostname")
	_, err2 := os.ReadDir("/")
	say("files", firstOf(err, err2))
	say("execute", exec.Command("/bin/true").Run())
	for family, name := range map[int]string{unix.AF_UNIX: "unix", unix.AF_NETLINK: "netlink"} {
		_, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
		say(name, err)
	}
	say("signal", unix.Kill(os.Getpid(), 0))
	_, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	say("internet", err)
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err == nil {
			return nil
		}
	}
	return errs[0]
}

// A relay that somebody has taken over opens no file, starts nothing and reaches nobody but over the internet; without the
// filter it would.
func TestFilter(t *testing.T) {
	for _, on := range []string{"on", "off"} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{"RELAY_TEST_FILTER=" + on}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, what := range []string{"files", "execute", "unix", "netlink", "signal", "internet"} {
			_, answer, _ := strings.Cut(string(out), what+": ")
			answer, _, _ = strings.Cut(answer, "\n")
			if refused := strings.Contains(answer, "operation not permitted"); refused != (on == "on" && what != "internet") || !refused && answer != "<nil>" {
				t.Errorf("%s: %s: %s", on, what, answer)
			}
		}
		if t.Failed() {
			t.Logf("%s", out)
		}
	}
}

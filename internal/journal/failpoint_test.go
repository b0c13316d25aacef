//go:build failpoint

package journal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// R247, T186, T192: a process is killed at each point of the journal, at its first hits and at
// later ones. What it had said is so afterwards.
func TestFailpoints(t *testing.T) {
	if dir := os.Getenv("JOURNAL_STORY_DIR"); dir != "" {
		tellStory(dir)
		return
	}
	points := failpoints(t)
	if len(points) < 12 {
		t.Fatalf("points: %v", points)
	}
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			killed := 0
			for nth := 1; nth <= soak(4, 100); nth++ {
				dir := fresh(t)
				child := exec.Command(os.Args[0], "-test.run=^TestFailpoints$")
				child.Env = append(os.Environ(), "JOURNAL_STORY_DIR="+dir, fmt.Sprintf("STOCKADE_FAILPOINT=%s:%d", point, nth))
				out, err := child.Output()
				if err == nil {
					break // it has not so many hits
				}
				if failed, ok := errors.AsType[*exec.ExitError](err); !ok || failed.Exited() {
					t.Fatalf("%v: %s", err, failed.Stderr)
				}
				killed++
				var then said
				lines := bufio.NewScanner(strings.NewReader(string(out)))
				for lines.Scan() {
					fmt.Sscan(lines.Text(), &then.acked, &then.first, &then.asked)
				}
				recovered(t, dir, then)
				if t.Failed() {
					t.Fatalf("hit %d, and it had said %+v", nth, then)
				}
			}
			if killed == 0 {
				t.Error("nobody comes by here")
			}
		})
	}
}

// failpoints finds the points by reading the package.
func failpoints(t *testing.T) (points []string) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, hit := range regexp.MustCompile(`failpoint\.Hit\("(.*?)"\)`).FindAllStringSubmatch(string(mustRead(t, name)), -1) {
			points = append(points, hit[1])
		}
	}
	return points
}

// tellStory is the child: it appends and trims, and says what it was told: records that
// are durable, the first one, and where it is about to trim.
func tellStory(dir string) {
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	j, err := Open(dir, storyOptions(nil))
	check(err)
	var first, asked int64
	for step := range 60 {
		_, err := j.Append(context.Background(), storyGroup(int(j.Next()))...)
		check(err)
		fmt.Println(j.Next(), first, asked)
		if step%7 == 6 {
			_, err := j.Checkpoint()
			check(err)
		}
		if step%9 == 8 {
			asked = j.Next() - 3
			fmt.Println(j.Next(), first, asked)
			first, err = j.Trim(asked)
			check(err)
			fmt.Println(j.Next(), first, asked)
		}
	}
	check(j.Close())
}

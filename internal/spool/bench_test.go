package spool

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
)

// BenchmarkSmall is what ten bytes of output cost: create, splice, read back, remove. Beside it,
// what a file costs that is made and removed for each, and the pipe alone.
func BenchmarkSmall(b *testing.B) {
	const line = "0123456789"
	b.Run("spool", func(b *testing.B) {
		s := fresh(b)
		buf := make([]byte, 100)
		for i := 0; b.Loop(); i++ {
			r, w := pipe(b)
			w.WriteString(line)
			w.Close()
			id := strconv.Itoa(i)
			l := s.Create(id, 1<<20)
			err := l.Drain(Stdout, r)
			r.Close()
			l.Seal()
			n, _ := l.ReadAt(Stdout, buf, 0)
			l.Close()
			if err := errors.Join(err, s.Remove(id)); err != nil || n != len(line) {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("file", func(b *testing.B) {
		dir := b.TempDir()
		buf := make([]byte, 100)
		for i := 0; b.Loop(); i++ {
			r, w := pipe(b)
			w.WriteString(line)
			w.Close()
			name := filepath.Join(dir, strconv.Itoa(i))
			f, _ := os.Create(name)
			n, _ := r.Read(buf)
			r.Close()
			f.Write(buf[:n])
			f.ReadAt(buf, 0)
			f.Close()
			if err := os.Remove(name); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("pipe", func(b *testing.B) {
		buf := make([]byte, 100)
		for b.Loop() {
			r, w := pipe(b)
			w.WriteString(line)
			w.Close()
			r.Read(buf)
			r.Close()
		}
	})
}

// BenchmarkFlood is a large output of another process: spooled and hashed, beside the shell
// that writes it to a file.
func BenchmarkFlood(b *testing.B) {
	const size = 512 << 20
	script := fmt.Sprintf("head -c %d /dev/zero", size)
	b.Run("spool", func(b *testing.B) {
		s := fresh(b)
		b.SetBytes(size)
		for b.Loop() {
			r, w := pipe(b)
			cmd := exec.Command("sh", "-c", script)
			cmd.Stdout = w
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			w.Close()
			l := s.Create("flood", size)
			if err := l.Drain(Stdout, r); err != nil || l.Kept(Stdout) != size || digest(b, l, Stdout) == "" {
				b.Fatal(err, l.Kept(Stdout))
			}
			cmd.Wait()
			r.Close()
			l.Close()
			s.Remove("flood")
		}
	})
	for name, script := range map[string]string{"file": script + " > out", "cat": script + " | cat > out"} {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			b.SetBytes(size)
			for b.Loop() {
				cmd := exec.Command("sh", "-c", script)
				cmd.Dir = dir
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
				os.Remove(filepath.Join(dir, "out"))
			}
		})
	}
}

// BenchmarkMany is 64 streams of 100 MB at once, each read while it is written. The heap at the end is
// what they have left and need.
func BenchmarkMany(b *testing.B) {
	s := fresh(b)
	const size = 100 << 20 / (64 << 10) * (64 << 10)
	b.SetBytes(64 * size)
	for b.Loop() {
		flood(b, s, 32, size)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapSys-m.HeapReleased)/(1<<20), "heap-MiB")
}

package relay

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// http carries one request with its answer, and what the answer turns the connection into.
func (r *relay) http(in *net.TCPConn, first *bufio.Reader, req request, dst netip.AddrPort, group uint64) error {
	c, err := r.open(in, group, basis{name: req.host, port: dst.Port()}, dst, join(req.host, dst.Port()))
	if err != nil {
		return err
	}
	var sent, received int64
	defer func() { r.close(c, sent, received) }()
	in.SetReadDeadline(time.Time{})
	if req.upgrade {
		sent, received = c.upgrade(first, req.head)
		return nil
	}
	var body sync.WaitGroup
	body.Go(func() {
		var err error
		if sent, err = sendRequest(c.out, first, req); err != nil && !errors.Is(err, errAnswered) {
			c.cut()
			return
		}
		// What comes after is no part of the request. It is read, or the close would be a reset, which
		// takes away what the program has not read of the answer.
		if _, err := io.Copy(io.Discard, first); err == nil {
			c.out.CloseWrite()
		}
	})
	n, err := io.Copy(in, c.out)
	received = n
	if err != nil || in.CloseWrite() != nil {
		c.cut()
	}
	in.SetReadDeadline(time.Now().Add(lingerWithin))
	body.Wait()
	return nil
}

// errAnswered ends a body that the other end does not want any more.
var errAnswered = errors.New("answered before the end of the request")

// sendRequest sends a head and exactly the body that it announces.
func sendRequest(out *net.TCPConn, in *bufio.Reader, req request) (sent int64, err error) {
	w := &counter{w: out}
	if _, err = w.Write(req.head); err != nil {
		return w.n, errAnswered
	}
	if req.length < 0 {
		err = copyChunks(w, in)
	} else if req.length > 0 {
		_, err = io.CopyN(w, in, req.length)
	}
	if w.failed {
		err = errAnswered
	}
	return w.n, err
}

// counter counts what is written, and tells a failure to write from one to read.
type counter struct {
	w      io.Writer
	n      int64
	failed bool
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	c.failed = err != nil
	return n, err
}

// copyChunks carries a chunked body: it reads every size, so that it knows where the request ends.
func copyChunks(w io.Writer, in *bufio.Reader) error {
	for {
		line, err := readLine(in, 18)
		if err != nil {
			return err
		}
		size, err := strconv.ParseUint(string(line[:len(line)-2]), 16, 60)
		if err != nil { // chunk extensions too: nobody uses them, and not everybody reads them alike
			return errMalformed
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
		if size == 0 {
			return copyTrailers(w, in)
		}
		if _, err := io.CopyN(w, in, int64(size)); err != nil {
			return err
		}
		if line, err = readLine(in, 2); err != nil {
			return err
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
}

// copyTrailers carries the fields after the last chunk, and the empty line.
func copyTrailers(w io.Writer, in *bufio.Reader) error {
	for range 64 {
		line, err := readLine(in, 1<<10)
		if err != nil {
			return err
		}
		if len(line) > 2 {
			if _, ok := new(fields).take(line[:len(line)-2]); !ok {
				return errMalformed
			}
		}
		if _, err := w.Write(line); err != nil || len(line) == 2 {
			return err
		}
	}
	return errMalformed
}

// readLine reads a line with its CR LF, of at most so many bytes.
func readLine(in *bufio.Reader, most int) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 2 || len(line) > most || line[len(line)-2] != '\r' || bytes.IndexByte(line[:len(line)-2], '\r') >= 0 {
		return nil, errMalformed
	}
	return line, nil
}

// upgrade carries a request that may end HTTP on this connection. Only after the answer says so does anything
// follow it.
func (c *conn) upgrade(first *bufio.Reader, head []byte) (sent, received int64) {
	n, err := c.out.Write(head)
	sent = int64(n)
	if err != nil {
		c.cut()
		return sent, 0
	}
	answer := bufio.NewReaderSize(c.out, maxFirst)
	switched, n, err := copyAnswer(c.in, answer)
	received = int64(n)
	if err != nil {
		c.cut()
		return sent, received
	}
	var out sync.WaitGroup
	if switched {
		out.Go(func() {
			n, err := flush(c.out, first)
			sent += n
			if err != nil {
				c.cut()
				return
			}
			sent += c.copy(c.out, c.in)
		})
	}
	b, _ := answer.Peek(answer.Buffered())
	n, err = c.in.Write(b)
	received += int64(n)
	if err != nil {
		c.cut()
	}
	received += c.copy(c.in, c.out)
	out.Wait()
	return sent, received
}

// copyAnswer carries heads of answers to the last one, and says whether that switches protocols.
func copyAnswer(in io.Writer, answer *bufio.Reader) (switched bool, n int, err error) {
	for {
		var size int
		var status string
		_, err := peek(answer, func(b []byte) (int, error) {
			end := bytes.Index(b, []byte("\r\n\r\n"))
			if end < 0 {
				return 0, errShort
			}
			size = end + 4
			if !bytes.HasPrefix(b, []byte("HTTP/1.")) || len(b) < len("HTTP/1.1 200") {
				return 0, errMalformed
			}
			status = string(b[9:12])
			return size, nil
		})
		if err != nil {
			return false, n, err
		}
		head, _ := answer.Peek(size)
		sent, err := in.Write(head)
		n += sent
		if err != nil {
			return false, n, err
		}
		answer.Discard(size)
		if status[0] != '1' || status == "101" {
			return status == "101", n, nil
		}
	}
}

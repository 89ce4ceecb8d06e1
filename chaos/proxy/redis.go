package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// redisFrame reads one value of RESP: a command of the client's, or a reply.
func redisFrame(r *bufio.Reader) (byte, []byte, error) {
	var frame bytes.Buffer
	err := value(r, &frame, 0)
	data := frame.Bytes()
	if len(data) == 0 {
		return 0, nil, err
	}
	return data[0], data, err
}

// maxDepth is deeper than any reply nests.
const maxDepth = 64

func value(r *bufio.Reader, frame *bytes.Buffer, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("proxy: a reply nested %d deep: is this Redis without TLS?", depth)
	}
	line, err := r.ReadBytes('\n')
	frame.Write(line)
	if err != nil {
		return err
	}
	text := bytes.TrimRight(line, "\r\n")
	if len(text) == 0 {
		return nil // an empty inline command, which the server ignores
	}
	n, perr := strconv.Atoi(string(text[1:]))
	switch text[0] {
	case '$', '!', '=': // bulk string, bulk error, verbatim string
		if perr != nil || n > maxFrame {
			return fmt.Errorf("proxy: bad length %q: is this Redis without TLS?", text)
		}
		if n < 0 {
			return nil
		}
		_, err := io.CopyN(frame, r, int64(n)+2)
		return err
	case '*', '~', '>': // array, set, push
		return values(r, frame, n, perr, depth)
	case '%': // map
		return values(r, frame, 2*n, perr, depth)
	case '|': // attributes, which come before the value that they are of
		if err := values(r, frame, 2*n, perr, depth); err != nil {
			return err
		}
		return value(r, frame, depth+1)
	}
	return nil // one line: simple string, error, number, null, boolean, double; an inline command
}

func values(r *bufio.Reader, frame *bytes.Buffer, n int, perr error, depth int) error {
	if perr != nil || n > maxFrame {
		return fmt.Errorf("proxy: bad count: is this Redis without TLS?")
	}
	for range max(n, 0) {
		if err := value(r, frame, depth+1); err != nil {
			return err
		}
	}
	return nil
}

package proxy

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"
)

// The codes of the messages that a client may begin with, in place of a version.
const (
	sslRequest    = 80877103
	gssencRequest = 80877104
	cancelRequest = 80877102
)

// maxFrame is larger than anything that a ledger sends. A length beyond it means that the stream
// is not what it is taken for.
const maxFrame = 1 << 28

// postgres splits the two halves of one connection. The client's first messages have no type
// byte, and an answer to a request for encryption is a single byte.
type postgres struct {
	started bool         // of the client's half: the startup message was seen
	asked   atomic.Int32 // requests for encryption that the server has not answered
}

func (pg *postgres) fromClient(r *bufio.Reader) (byte, []byte, error) {
	if pg.started {
		return typed(r)
	}
	head := make([]byte, 8)
	if n, err := io.ReadFull(r, head); err != nil {
		return 0, head[:n], err
	}
	switch code := binary.BigEndian.Uint32(head[4:]); code {
	case sslRequest, gssencRequest:
		pg.asked.Add(1)
	case cancelRequest:
	default:
		pg.started = true
	}
	data, err := rest(r, head, binary.BigEndian.Uint32(head))
	return 0, data, err
}

func (pg *postgres) fromServer(r *bufio.Reader) (byte, []byte, error) {
	// An answer cannot come before its question: once the byte is here, the count is right.
	if _, err := r.Peek(1); err != nil {
		return 0, nil, err
	}
	if pg.asked.Load() > 0 {
		b, err := r.ReadByte()
		pg.asked.Add(-1)
		return 0, []byte{b}, err
	}
	return typed(r)
}

// typed reads a message: a type, a length that counts itself, and the rest.
func typed(r *bufio.Reader) (byte, []byte, error) {
	head := make([]byte, 5)
	if n, err := io.ReadFull(r, head); err != nil {
		return 0, head[:n], err
	}
	data, err := rest(r, head, binary.BigEndian.Uint32(head[1:])+1)
	return head[0], data, err
}

func rest(r *bufio.Reader, head []byte, size uint32) ([]byte, error) {
	if size < uint32(len(head)) || size > maxFrame {
		return head, fmt.Errorf("proxy: a frame of %d bytes: is this Postgres without TLS?", size)
	}
	data := make([]byte, size)
	n, err := io.ReadFull(r, data[copy(data, head):])
	return data[:len(head)+n], err
}

// Package proxy stands between a client and its database and breaks the connection at a chosen
// frame: before the frame was passed on, or after, which is when nobody knows what became of it.
// It knows where the frames of Postgres and of Redis begin and end, so that the k-th frame is the
// same at every run.
//
//	p, err := proxy.Listen(proxy.Postgres, "127.0.0.1:5432")
//	…                                  // point the client at p.Addr()
//	hit := p.Arm(proxy.Fault{Frame: 3, Direction: proxy.ToServer, After: true})
//	…                                  // the client's third frame arrives, and its answer never does
//	frame := <-hit
//
// It speaks neither TLS nor compression: point clients at it with both off.
package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Protocol says how a stream is cut into frames.
type Protocol int

// The protocols.
const (
	// Postgres is version 3 of its protocol; a frame is one message.
	Postgres Protocol = iota + 1
	// Redis is RESP 2 and 3; a frame is one command, or one reply.
	Redis
)

// Direction is where a frame goes.
type Direction int

// The directions. The zero value of a Fault's Direction means either.
const (
	ToServer Direction = iota + 1
	ToClient
)

// String returns "to server" or "to client".
func (d Direction) String() string {
	switch d {
	case ToServer:
		return "to server"
	case ToClient:
		return "to client"
	}
	return "either way"
}

// Frame is one message on its way.
type Frame struct {
	Connection int // from 1, in the order in which clients connected
	Direction  Direction
	// Type is the message's type byte in Postgres, 0 for what has none (a client's first
	// message, the answer to a request for TLS); the first byte in Redis.
	Type byte
	Data []byte // everything, type and length included
}

// String names a frame for people: "to server 'Q' 23 bytes on connection 1".
func (f Frame) String() string {
	return fmt.Sprintf("%v %q %d bytes on connection %d", f.Direction, f.Type, len(f.Data), f.Connection)
}

// Fault says at which frame what happens. It happens once.
type Fault struct {
	// Frame counts the frames that Direction and Match let through, from 1, from Arm on. 0
	// means 1.
	Frame     int
	Direction Direction
	// Match, if set, chooses among the frames. It must not keep or change Data.
	Match func(Frame) bool
	// After cuts the connection once the frame was passed on; else it never arrives.
	After bool
	// Delay holds the frame up for so long, and cuts nothing. After means nothing then.
	Delay time.Duration
	// Swallow drops the frame and cuts nothing: the client waits for an answer that never
	// comes. After means nothing then. It leaves a gap, which no TCP stream has: swallow a
	// whole answer, or the last thing that a connection says.
	Swallow bool
	// Twice passes the frame on a second time, and cuts nothing. No network does that; a driver
	// that sends again does.
	Twice bool
}

// Proxy forwards connections. Its methods may be called by many goroutines.
type Proxy struct {
	protocol Protocol
	target   string
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	group    sync.WaitGroup

	mu     sync.Mutex
	open   map[*connection]struct{}
	number int
	frames int
	armed  []*armed
	refuse bool
}

type armed struct {
	Fault
	seen int
	hit  chan Frame
}

// Listen starts a proxy to the server at target, host:port, on a free port of the loopback.
func Listen(p Protocol, target string) (*Proxy, error) {
	if p != Postgres && p != Redis {
		return nil, fmt.Errorf("proxy: protocol %d is neither Postgres nor Redis", p)
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	proxy := &Proxy{protocol: p, target: target, listener: l, open: map[*connection]struct{}{}}
	proxy.ctx, proxy.cancel = context.WithCancel(context.Background())
	proxy.group.Go(proxy.accept)
	return proxy, nil
}

// Addr returns where clients connect, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Frames returns how many frames went by, both ways, on all connections.
func (p *Proxy) Frames() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frames
}

// Arm adds a fault. The frame that it struck is sent to the channel, which is then closed;
// Disarm and Close close it without.
func (p *Proxy) Arm(f Fault) <-chan Frame {
	a := &armed{Fault: f, hit: make(chan Frame, 1)}
	a.Frame = max(a.Frame, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = append(p.armed, a)
	return a.hit
}

// Disarm takes back every fault that has not struck.
func (p *Proxy) Disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.armed {
		close(a.hit)
	}
	p.armed = nil
}

// CutAll cuts every connection there is.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		c.cut()
	}
}

// Refuse makes new connections fail, or succeed again. Those that are open stay.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Close stops listening, cuts every connection and waits for what is under way.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.CutAll()
	p.group.Wait()
	p.Disarm()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.group.Go(func() { p.serve(client) })
	}
}

// connection is a client's connection and the server's end of it.
type connection struct {
	number         int
	client, server net.Conn
	severed        atomic.Bool
}

// cut resets both ends, so that no FIN tells an orderly end.
func (c *connection) cut() {
	reset(c.client)
	reset(c.server)
}

// sever cuts the connection behind a frame that was just passed on: whoever gets it sees an
// orderly end after it, because a reset could overtake it, and whoever sent it sees a reset.
func (c *connection) sever(to Direction) {
	if to == ToServer {
		closeWrite(c.server)
		reset(c.client)
	} else {
		closeWrite(c.client)
		reset(c.server)
	}
}

func reset(end net.Conn) {
	if tcp, ok := end.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = end.Close()
}

func closeWrite(end net.Conn) {
	if tcp, ok := end.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := new(net.Dialer).DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	c := &connection{client: client, server: server}
	p.mu.Lock()
	if p.refuse || p.ctx.Err() != nil {
		p.mu.Unlock()
		c.cut()
		return
	}
	p.number++
	c.number = p.number
	p.open[c] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.open, c)
		p.mu.Unlock()
	}()
	split := p.splitters()
	var both sync.WaitGroup
	both.Go(func() { p.forward(c, ToServer, split[0]) })
	both.Go(func() { p.forward(c, ToClient, split[1]) })
	both.Wait()
	_ = client.Close()
	_ = server.Close()
}

// splitter reads one frame.
type splitter func(r *bufio.Reader) (kind byte, data []byte, err error)

func (p *Proxy) splitters() [2]splitter {
	if p.protocol == Redis {
		return [2]splitter{redisFrame, redisFrame}
	}
	pg := &postgres{}
	return [2]splitter{pg.fromClient, pg.fromServer}
}

func (p *Proxy) forward(c *connection, to Direction, next splitter) {
	from, into := c.client, c.server
	if to == ToClient {
		from, into = into, from
	}
	r := bufio.NewReader(from)
	for {
		kind, data, err := next(r)
		switch {
		case c.severed.Load():
			// What is still said is heard by nobody, but read: closing on it would reset.
			_, _ = io.Copy(io.Discard, r)
			return
		case err != nil && errors.Is(err, io.EOF) && len(data) == 0:
			closeWrite(into) // an orderly end is passed on as one
			return
		case err != nil:
			c.cut()
			return
		}
		if !p.pass(c, Frame{Connection: c.number, Direction: to, Type: kind, Data: data}, into) {
			c.cut()
			return
		}
	}
}

// pass forwards a frame, with what is armed for it; false means to cut.
func (p *Proxy) pass(c *connection, f Frame, into net.Conn) bool {
	fault := p.struck(f)
	copies := 1
	switch {
	case fault == nil:
	case fault.Delay > 0:
		select {
		case <-time.After(fault.Delay):
		case <-p.ctx.Done():
			return false
		}
	case fault.Swallow:
		copies = 0
	case fault.Twice:
		copies = 2
	case !fault.After:
		return false
	default:
		c.severed.Store(true) // before the frame is passed on, or its answer might be as well
	}
	for range copies {
		if _, err := into.Write(f.Data); err != nil {
			return false
		}
	}
	if fault == nil || fault.Delay > 0 || fault.Swallow || fault.Twice {
		return true
	}
	c.sever(f.Direction)
	return true
}

// struck returns the fault that is for this frame, or nil.
func (p *Proxy) struck(f Frame) *armed {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frames++
	at := -1
	for i, a := range p.armed {
		if a.Direction != 0 && a.Direction != f.Direction || a.Match != nil && !a.Match(f) {
			continue
		}
		a.seen++
		if at < 0 && a.seen >= a.Frame {
			at = i
		}
	}
	if at < 0 {
		return nil
	}
	hit := p.armed[at]
	p.armed = slices.Delete(p.armed, at, at+1)
	hit.hit <- f
	close(hit.hit)
	return hit
}

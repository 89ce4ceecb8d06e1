package redisledger_test

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// proxy stands between a client and a server. When armed it swallows the answer to the next script:
// the server has run it, and the client does not hear of it.
type proxy struct {
	t        testing.TB
	listener net.Listener
	server   string
	silent   bool // keep the connection open and let the client run into its timeout

	armed     atomic.Int32 // how many answers to swallow
	swallowed atomic.Int32

	mu    sync.Mutex
	conns []net.Conn
}

func newProxy(t testing.TB, server string, silent bool) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, listener: l, server: server, silent: silent}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.cut()
		wg.Wait()
	})
	return p
}

// keep remembers a connection until it is cut.
func (p *proxy) keep(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, c)
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		client.Close()
		return
	}
	p.keep(client)
	p.keep(server)
	var script atomic.Bool // the last request was a script
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer server.Close()
		buf := make([]byte, 1<<20)
		for {
			n, err := client.Read(buf)
			if n > 0 {
				script.Store(bytes.Contains(bytes.ToLower(buf[:n]), []byte("evalsha")) || bytes.Contains(bytes.ToLower(buf[:n]), []byte("$4\r\neval\r\n")))
				if _, err := server.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 1<<20)
	mute := false
	for {
		n, err := server.Read(buf)
		if n > 0 && script.Load() && !mute && !bytes.HasPrefix(buf, []byte("-NOSCRIPT")) && p.armed.Load() > 0 && p.armed.Add(-1) >= 0 {
			p.swallowed.Add(1)
			if !p.silent {
				client.Close()
				break
			}
			mute = true
		}
		if n > 0 && !mute {
			if _, err := client.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	if !mute {
		client.Close()
	}
	server.Close()
	<-done
}

// client returns a client that goes through the proxy.
func (p *proxy) client(change ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: p.listener.Addr().String(), ReadTimeout: 200 * time.Millisecond, MinRetryBackoff: time.Millisecond, MaxRetryBackoff: time.Millisecond}
	for _, c := range change {
		c(o)
	}
	return closed(p.t, redis.NewClient(o))
}

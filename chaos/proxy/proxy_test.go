package proxy_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencedrun/fencedrun/chaos/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server takes whatever clients say, and answers each message with the same.
type server struct {
	net.Listener
	mu    sync.Mutex
	heard bytes.Buffer
	more  *sync.Cond
	group sync.WaitGroup
}

func serve(t *testing.T) *server {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Listener: l}
	s.more = sync.NewCond(&s.mu)
	s.group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.group.Go(func() { s.echo(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.group.Wait()
	})
	return s
}

func (s *server) echo(conn net.Conn) {
	defer conn.Close()
	part := make([]byte, 4096)
	for {
		n, err := conn.Read(part)
		s.mu.Lock()
		s.heard.Write(part[:n])
		if err != nil {
			s.heard.WriteString("|")
		}
		s.more.Broadcast()
		s.mu.Unlock()
		if err != nil {
			return
		}
		_, _ = conn.Write(part[:n])
	}
}

// hears waits until the server heard exactly this; "|" is the end of a connection.
func (s *server) hears(t *testing.T, want string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.heard.Len() < len(want) {
		s.more.Wait()
	}
	if got := s.heard.String(); got != want {
		t.Fatalf("the server heard %q, want %q", got, want)
	}
}

func between(t *testing.T, p proxy.Protocol) (*proxy.Proxy, *server) {
	t.Helper()
	s := serve(t)
	between, err := proxy.Listen(p, s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := between.Close(); err != nil {
			t.Error(err)
		}
	})
	return between, s
}

func dial(t *testing.T, p *proxy.Proxy) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil { // for a test that would hang
		t.Fatal(err)
	}
	return conn
}

func say(t *testing.T, conn net.Conn, what string) {
	t.Helper()
	if _, err := io.WriteString(conn, what); err != nil {
		t.Fatal(err)
	}
}

// answer reads an answer of that many bytes, or what comes before the end.
func answer(conn net.Conn, n int) string {
	got := make([]byte, n)
	read, err := io.ReadFull(conn, got)
	if err != nil {
		return string(got[:read]) + "|"
	}
	return string(got)
}

const ping = "*1\r\n$4\r\nPING\r\n"

func TestAFrameIsCutBeforeItArrives(t *testing.T) {
	p, s := between(t, proxy.Redis)
	hit := p.Arm(proxy.Fault{Frame: 2, Direction: proxy.ToServer})
	c := dial(t, p)
	say(t, c, ping)
	if got := answer(c, len(ping)); got != ping {
		t.Fatalf("answered %q", got)
	}
	say(t, c, "*1\r\n$3\r\nSET\r\n")
	if got := answer(c, 1); got != "|" {
		t.Errorf("answered %q", got)
	}
	s.hears(t, ping+"|")
	if f := <-hit; f.Direction != proxy.ToServer || f.Type != '*' || !strings.Contains(string(f.Data), "SET") {
		t.Errorf("struck %v", f)
	}
}

func TestAFrameIsCutOnceItArrived(t *testing.T) {
	p, s := between(t, proxy.Redis)
	p.Arm(proxy.Fault{Frame: 2, Direction: proxy.ToServer, After: true})
	c := dial(t, p)
	say(t, c, ping+"*1\r\n$3\r\nSET\r\n"+ping) // one write, three frames
	if got := answer(c, 3*len(ping)); !strings.HasSuffix(got, "|") || len(got) > len(ping)+1 {
		t.Errorf("answered %q", got)
	}
	s.hears(t, ping+"*1\r\n$3\r\nSET\r\n|")
}

func TestAnAnswerIsCut(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprint("after=", after), func(t *testing.T) {
			p, s := between(t, proxy.Redis)
			hit := p.Arm(proxy.Fault{Direction: proxy.ToClient, After: after})
			c := dial(t, p)
			say(t, c, ping)
			<-hit
			want := "|"
			if after {
				want = ping + "|"
			}
			if got := answer(c, len(ping)+1); got != want {
				t.Errorf("answered %q, want %q", got, want)
			}
			s.hears(t, ping+"|")
		})
	}
}

func TestAFrameIsSwallowedSentTwiceOrHeldUp(t *testing.T) {
	p, s := between(t, proxy.Redis)
	c := dial(t, p)
	p.Arm(proxy.Fault{Direction: proxy.ToServer, Swallow: true})
	p.Arm(proxy.Fault{Direction: proxy.ToServer, Frame: 2, Twice: true})
	p.Arm(proxy.Fault{Direction: proxy.ToServer, Frame: 3, Delay: time.Millisecond})
	say(t, c, "*0\r\n")
	say(t, c, ping)
	say(t, c, "+OK\r\n")
	if got, want := answer(c, 2*len(ping)+5), ping+ping+"+OK\r\n"; got != want {
		t.Errorf("answered %q, want %q", got, want)
	}
	s.hears(t, ping+ping+"+OK\r\n")
}

func TestOnlyWhatMatchesIsStruck(t *testing.T) {
	p, _ := between(t, proxy.Redis)
	c := dial(t, p)
	hit := p.Arm(proxy.Fault{Direction: proxy.ToServer, Match: func(f proxy.Frame) bool { return bytes.Contains(f.Data, []byte("SET")) }})
	say(t, c, ping)
	if got := answer(c, len(ping)); got != ping {
		t.Fatalf("answered %q", got)
	}
	say(t, c, "*1\r\n$3\r\nSET\r\n")
	if f := <-hit; f.String() != `to server '*' 13 bytes on connection 1` {
		t.Error(f)
	}
}

func TestARepliesEndIsFound(t *testing.T) {
	for _, reply := range []string{
		"+OK\r\n", "-ERR no\r\n", ":12\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "$-1\r\n", "*-1\r\n", "$0\r\n\r\n", "$4\r\na\r\nb\r\n", "!5\r\nERR x\r\n", "=7\r\ntxt:abc\r\n",
		"*2\r\n$1\r\na\r\n*1\r\n:1\r\n", "%1\r\n+k\r\n$1\r\nv\r\n", "~1\r\n+a\r\n", ">2\r\n+pubsub\r\n+x\r\n", "|1\r\n+ttl\r\n:3\r\n+OK\r\n", "PING\r\n",
	} {
		p, _ := between(t, proxy.Redis)
		c := dial(t, p)
		say(t, c, reply+ping)
		if got := answer(c, len(reply)+len(ping)); got != reply+ping {
			t.Errorf("%q: answered %q", reply, got)
		}
		if p.Frames() != 4 { // two questions and two answers
			t.Errorf("%q: %d frames", reply, p.Frames())
		}
	}
}

func TestWhatIsNoFrameEndsTheConnection(t *testing.T) {
	for protocol, text := range map[proxy.Protocol]string{
		proxy.Redis:    "$x\r\n",
		proxy.Postgres: "\xff\xff\xff\xff\x00\x03\x00\x00",
	} {
		p, s := between(t, protocol)
		c := dial(t, p)
		say(t, c, text)
		if got := answer(c, 1); got != "|" {
			t.Errorf("%q: answered %q", text, got)
		}
		s.hears(t, "|")
	}
}

func message(kind byte, body string) string {
	head := make([]byte, 5)
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(4+len(body)))
	return string(head) + body
}

func startup(code uint32, body string) string {
	head := make([]byte, 8)
	binary.BigEndian.PutUint32(head, uint32(8+len(body)))
	binary.BigEndian.PutUint32(head[4:], code)
	return string(head) + body
}

func TestPostgresMessagesAreFramesFromTheFirstOn(t *testing.T) {
	s := serve(t)
	// This one answers a request for TLS with a single byte, as Postgres does.
	pg, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	defer group.Wait()
	defer pg.Close()
	group.Go(func() {
		conn, err := pg.Accept()
		if err != nil {
			return
		}
		_ = answer(conn, 8)
		_, _ = io.WriteString(conn, "N")
		_ = answer(conn, len(startup(196608, "user\x00x\x00\x00")))
		_, _ = io.WriteString(conn, message('R', "\x00\x00\x00\x00")+message('Z', "I"))
		s.echo(conn)
	})
	p, err := proxy.Listen(proxy.Postgres, pg.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	hit := p.Arm(proxy.Fault{Direction: proxy.ToServer, Match: func(f proxy.Frame) bool { return f.Type == 'Q' }, After: true})
	c := dial(t, p)
	say(t, c, startup(80877103, ""))
	if got := answer(c, 1); got != "N" {
		t.Fatalf("answered %q", got)
	}
	say(t, c, startup(196608, "user\x00x\x00\x00"))
	if got := answer(c, 15); got != message('R', "\x00\x00\x00\x00")+message('Z', "I") {
		t.Fatalf("answered %q", got)
	}
	say(t, c, message('P', "\x00select\x00")+message('Q', "commit\x00")+message('S', ""))
	if f := <-hit; f.Type != 'Q' {
		t.Errorf("struck %v", f)
	}
	s.hears(t, message('P', "\x00select\x00")+message('Q', "commit\x00")+"|")
}

func TestAServerThatIsAwayIsAway(t *testing.T) {
	p, s := between(t, proxy.Redis)
	p.Refuse(true)
	refused(t, p)
	p.Refuse(false)
	c := dial(t, p)
	say(t, c, ping)
	if got := answer(c, len(ping)); got != ping {
		t.Errorf("answered %q", got)
	}
	p.CutAll()
	if got := answer(c, 1); got != "|" {
		t.Errorf("answered %q", got)
	}
	_ = s.Close()
	refused(t, p)
}

// refused connects, and is thrown out sooner or later.
func refused(t *testing.T, p *proxy.Proxy) {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr())
	if err != nil {
		return
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := answer(c, 1); got != "|" {
		t.Errorf("answered %q", got)
	}
}

func TestDisarmTellsWhoWaits(t *testing.T) {
	p, _ := between(t, proxy.Redis)
	hit := p.Arm(proxy.Fault{Frame: 9})
	p.Disarm()
	if _, ok := <-hit; ok {
		t.Error("struck")
	}
}

func TestAnUnknownProtocolIsAnError(t *testing.T) {
	if _, err := proxy.Listen(0, "127.0.0.1:1"); err == nil || err.Error() != "proxy: protocol 0 is neither Postgres nor Redis" {
		t.Error(err)
	}
}

//go:build unix

package private

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// Ports are taken from below those that the kernel gives to outgoing connections, which a busy
// machine would otherwise take between our look and the server's. A node of a Redis Cluster
// takes the port 10,000 above its own too.
const (
	firstPort, ports = 15_000, 7_000
	busOffset        = 10_000
)

// tried counts the ports that this process has looked at, from a random one on, so that none is
// given out twice.
var tried atomic.Int64

var offset = rand.Int64N(ports)

// freePort returns a port of the loopback interface that nobody listens on, nor on the one
// busOffset above.
func freePort() (int, error) {
	for range 200 {
		port := int(firstPort + (offset+tried.Add(1))%ports)
		if isFree(port) && isFree(port+busOffset) {
			return port, nil
		}
	}
	return 0, errors.New("no free port on 127.0.0.1")
}

func isFree(port int) bool {
	l, err := net.Listen("tcp4", address(port))
	return err == nil && l.Close() == nil
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

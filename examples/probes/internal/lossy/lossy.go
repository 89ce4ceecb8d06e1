// Package lossy is a network that loses what it is told to lose, between a client and a server in the same process. It is for
// the tests of the recipes: no port, no second goroutine, no clock.
package lossy

import (
	"errors"
	"net/http"
	"net/http/httptest"
)

// Loss is what becomes of a request. Its sender cannot tell the two losses apart.
type Loss int

const (
	// Nothing is lost.
	Nothing Loss = iota
	// Request is lost before the server gets it.
	Request
	// Answer is lost after the server has acted.
	Answer
)

// ErrReset is what a client sees of a loss.
var ErrReset = errors.New("read: connection reset by peer")

// Network brings requests to a server. It is an http.RoundTripper for one goroutine at a time.
type Network struct {
	Server http.Handler
	// Next says what becomes of the requests to come, one each; then nothing is lost.
	Next []Loss
}

// Client returns a client whose requests go to the server whatever host they name.
func (n *Network) Client() *http.Client { return &http.Client{Transport: n} }

// RoundTrip implements http.RoundTripper.
func (n *Network) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		defer request.Body.Close()
	}
	loss := Nothing
	if len(n.Next) > 0 {
		loss, n.Next = n.Next[0], n.Next[1:]
	}
	if loss == Request {
		return nil, ErrReset
	}
	// What a server is handed differs from what a client sends in this.
	got := request.Clone(request.Context())
	got.RequestURI = request.URL.RequestURI()
	if got.Body == nil {
		got.Body = http.NoBody
	}
	answer := httptest.NewRecorder()
	n.Server.ServeHTTP(answer, got)
	if loss == Answer {
		return nil, ErrReset
	}
	return answer.Result(), nil
}

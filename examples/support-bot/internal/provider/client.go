package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Client calls a provider. Every call has its deadline and is made once.
type Client struct {
	base     string
	deadline time.Duration
	http     *http.Client
}

// NewClient returns a client for the provider at base that waits no longer than deadline for an answer.
func NewClient(base string, deadline time.Duration) *Client {
	// An idempotency key travels in the body. As a header named Idempotency-Key it would make net/http send a POST again by
	// itself when a reused connection breaks, and this provider would do it twice.
	transport := &http.Transport{MaxIdleConnsPerHost: 32, IdleConnTimeout: 30 * time.Second}
	return &Client{base: base, deadline: deadline, http: &http.Client{Transport: transport}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// StatusError is an answer that is not 2xx.
type StatusError struct {
	Status  int
	Message string
	Applied bool
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("provider: %d: %s", e.Status, e.Message)
}

// NotApplied reports that the provider said itself that it did nothing. Of any other error, a timeout above all, nobody
// can say that.
func (e *StatusError) NotApplied() bool { return !e.Applied }

// Receive hands in a customer's message.
func (c *Client) Receive(ctx context.Context, conversation string, message Message) error {
	return c.call(ctx, http.MethodPost, conversation, "messages", message, nil)
}

// Conversation reads what the help desk shows of a conversation.
func (c *Client) Conversation(ctx context.Context, id string) (Conversation, error) {
	var conversation Conversation
	err := c.call(ctx, http.MethodGet, id, "", nil, &conversation)
	return conversation, err
}

// Reply sends an answer to the customer.
func (c *Client) Reply(ctx context.Context, conversation string, reply Reply) error {
	return c.call(ctx, http.MethodPost, conversation, "replies", reply, nil)
}

// Act carries out an action.
func (c *Client) Act(ctx context.Context, conversation string, action Action) error {
	return c.call(ctx, http.MethodPost, conversation, "actions", action, nil)
}

func (c *Client) call(ctx context.Context, method, conversation, what string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.deadline)
	defer cancel()
	target := c.base + "/conversations/" + url.PathEscape(conversation)
	if what != "" {
		target += "/" + what
	}
	var body io.Reader
	if in != nil {
		encoded, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("provider: %w", err)
		}
		body = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return fmt.Errorf("provider: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("provider: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		// Only a readable body that says "applied": false counts; a gateway's error page says nothing.
		failure := &StatusError{Status: response.StatusCode, Applied: true}
		var said struct {
			Error   string `json:"error"`
			Applied *bool  `json:"applied"`
		}
		if json.NewDecoder(response.Body).Decode(&said) == nil && said.Applied != nil {
			failure.Message, failure.Applied = said.Error, *said.Applied
		}
		return failure
	}
	if out != nil {
		if err := json.NewDecoder(response.Body).Decode(out); err != nil {
			return fmt.Errorf("provider: %w", err)
		}
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return nil
}

// Package mailgun is a recipe to copy: e-mails that are sent once, and are found again by their Message-ID when Mailgun's answer
// was lost. A provider with another API is probed in the same way as long as it keeps the Message-ID that it is given.
package mailgun

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// Mail sends e-mails from one domain.
type Mail struct {
	Client *http.Client
	Key    string // the API key
	Domain string
}

// Message is an e-mail to be sent.
type Message struct {
	From, To, Subject, Text string
}

// Sent is what is known of an e-mail that was accepted.
type Sent struct {
	MessageID string `json:"message_id"` // without angle brackets
}

// Intent declares the replies; put it into runs.Config.Intents, so that a sweep can ask about them.
func (m *Mail) Intent() runs.Intent[Sent] {
	return runs.Intent[Sent]{
		Name:      "reply",
		Answering: true,
		// Mailgun's events arrive late, by up to half an hour as its own advice for polling them has it. So nobody asks before
		// that: not finding the message would stop the job for a person.
		ClaimDeadline: 30 * time.Minute,
		// A message that is not among the events may still have been sent: ReadYourWrites stays false, and only finding it is
		// an answer. Mailgun honours no idempotency key.
		Probe: m.probe,
	}
}

// Once answers inbound messages once.
func (m *Mail) Once(ctx context.Context, key runs.EffectKey, message Message, answers []string) (Sent, error) {
	return m.Intent().Once(ctx, key, func(ctx context.Context, call *runs.Call) (Sent, error) {
		id := m.messageID(call.IdempotencyKey)
		call.SetReference(id)
		return m.send(ctx, id, message)
	}, runs.With{Params: map[string]string{"to": message.To}, Summary: message.Text, Answers: answers})
}

// messageID is the same for every call of one effect, in every process, and different for every other effect.
func (m *Mail) messageID(idempotencyKey string) string { return idempotencyKey + "@" + m.Domain }

func (m *Mail) send(ctx context.Context, messageID string, message Message) (Sent, error) {
	form := url.Values{
		"from": {message.From}, "to": {message.To}, "subject": {message.Subject}, "text": {message.Text},
		"h:Message-Id": {"<" + messageID + ">"},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url("messages"), strings.NewReader(form.Encode()))
	if err != nil {
		return Sent{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var queued struct {
		ID string `json:"id"`
	}
	if err := m.do(request, &queued); err != nil {
		return Sent{}, err
	}
	return Sent{MessageID: strings.Trim(queued.ID, "<>")}, nil
}

func (m *Mail) probe(ctx context.Context, q runs.Question) (runs.Found[Sent], error) {
	var none runs.Found[Sent]
	id := m.messageID(q.IdempotencyKey)
	query := url.Values{
		"message-id": {id},
		// The ledger's clock is not Mailgun's.
		"begin":     {strconv.FormatInt(q.Since().Add(-10*time.Minute).Unix(), 10)},
		"ascending": {"yes"}, // so that its acceptance is on the first page
		"limit":     {"300"},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url("events")+"?"+query.Encode(), nil)
	if err != nil {
		return none, err
	}
	var page struct {
		Items []struct {
			Event string `json:"event"`
		} `json:"items"`
	}
	if err := m.do(request, &page); err != nil {
		return none, err
	}
	rejected := false
	for _, item := range page.Items {
		switch item.Event {
		case "accepted", "delivered", "failed": // of these, the last is a bounce: it was sent
			return runs.Applied(Sent{MessageID: id}, id), nil
		case "rejected":
			rejected = true
		}
	}
	if rejected {
		return runs.Rejected[Sent](), nil // its own books say so: this is no "not found"
	}
	return runs.NotFound[Sent](), nil
}

func (m *Mail) url(what string) string { return "https://api.mailgun.net/v3/" + m.Domain + "/" + what }

func (m *Mail) do(request *http.Request, into any) error {
	request.SetBasicAuth("api", m.Key)
	answer, err := m.Client.Do(request)
	if err != nil {
		return err // it may have arrived
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		failed := &Error{Status: answer.StatusCode}
		_ = json.NewDecoder(answer.Body).Decode(failed) // the status is enough
		return failed
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// Error is an answer of Mailgun's that is no success.
type Error struct {
	Status  int    `json:"-"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return fmt.Sprintf("mailgun: %d: %s", e.Status, e.Message) }

// NotApplied says which answers are a "no" (rule S2.1).
func (e *Error) NotApplied() bool { return e.Status >= 400 && e.Status < 500 }

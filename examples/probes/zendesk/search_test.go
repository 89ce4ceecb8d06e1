package zendesk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/examples/probes/internal/lossy"
	"github.com/fencedrun/fencedrun/examples/probes/zendesk"
	"github.com/fencedrun/fencedrun/runs"
	"github.com/fencedrun/fencedrun/runs/runstest"
)

// searching is the counter-example: the same tickets, asked for by Zendesk's search. It takes minutes until a ticket is found,
// so this probe may only say yes.
func searching(desk *zendesk.Desk, readsItsWrites bool) runs.Intent[zendesk.Opened] {
	in := desk.Intent()
	in.HonoursKey, in.ReadYourWrites = 0, readsItsWrites
	in.Probe = func(ctx context.Context, q runs.Question) (runs.Found[zendesk.Opened], error) {
		query := url.Values{"query": {"type:ticket external_id:" + q.IdempotencyKey}}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://shop.zendesk.com/api/v2/search.json?"+query.Encode(), nil)
		if err != nil {
			return runs.Found[zendesk.Opened]{}, err
		}
		request.SetBasicAuth(desk.Email+"/token", desk.Token)
		answer, err := desk.Client.Do(request)
		if err != nil {
			return runs.Found[zendesk.Opened]{}, err
		}
		defer answer.Body.Close()
		var list struct {
			Results []zendesk.Opened `json:"results"`
		}
		if err := json.NewDecoder(answer.Body).Decode(&list); err != nil || answer.StatusCode != http.StatusOK {
			return runs.Found[zendesk.Opened]{}, fmt.Errorf("search: %d, %w", answer.StatusCode, err)
		}
		for _, ticket := range list.Results {
			return runs.Applied(ticket, ""), nil
		}
		return runs.NotFound[zendesk.Opened](), nil
	}
	return in
}

// post opens a ticket without an idempotency key.
func post(ctx context.Context, desk *zendesk.Desk, externalID string) (zendesk.Opened, error) {
	body := fmt.Sprintf(`{"ticket": {"external_id": %q, "subject": "s", "comment": {"body": "b"}}}`, externalID)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://shop.zendesk.com/api/v2/tickets.json", strings.NewReader(body))
	if err != nil {
		return zendesk.Opened{}, err
	}
	request.SetBasicAuth(desk.Email+"/token", desk.Token)
	answer, err := desk.Client.Do(request)
	if err != nil {
		return zendesk.Opened{}, err
	}
	defer answer.Body.Close()
	var created struct {
		Ticket zendesk.Opened `json:"ticket"`
	}
	err = json.NewDecoder(answer.Body).Decode(&created)
	return created.Ticket, err
}

func TestAProbeThatSearchesMayOnlySayYes(t *testing.T) {
	for _, declared := range []bool{false, true} {
		network := &lossy.Network{Next: []lossy.Loss{lossy.Answer}}
		desk := &zendesk.Desk{Client: network.Client(), Subdomain: "shop", Email: "bot@example.com", Token: "t1"}
		in := searching(desk, declared)
		k := runstest.NewKeeper(t, &runs.Config{Intents: []runs.Declared{in}})
		server := &fake{now: k.Now, saved: map[string]saved{}, lag: 10 * time.Minute}
		network.Server = server
		once := func() (zendesk.Opened, error) {
			return in.OnceOn(t.Context(), k.Keeper, "thread-7", runs.Key("order", "A-1"), func(ctx context.Context, call *runs.Call) (zendesk.Opened, error) {
				return post(ctx, desk, call.IdempotencyKey)
			})
		}
		if _, err := once(); err == nil {
			t.Fatal("no doubt")
		}
		k.Advance(5 * time.Minute) // the ticket is there, and not in the index
		_, err := once()
		switch {
		case !declared && (err == nil || len(server.tickets) != 1 || len(k.Unknown("thread-7")) != 1):
			t.Errorf("not found was believed: %v, %d tickets", err, len(server.tickets))
		case declared && len(server.tickets) != 2:
			t.Errorf("the wrong word did no harm: %v, %d tickets", err, len(server.tickets))
		case declared:
			continue
		}
		k.Advance(10 * time.Minute)
		if ticket, err := once(); ticket.ID != 101 || err != nil || len(server.tickets) != 1 {
			t.Errorf("got %+v, %v; %d tickets", ticket, err, len(server.tickets))
		}
	}
}

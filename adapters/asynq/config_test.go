package asynqruns

import (
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/fencedrun/fencedrun/runs"
)

func TestConfigErrorNamesTheField(t *testing.T) {
	for _, c := range []struct {
		config *Config
		want   string // "" is no error
	}{
		{&Config{Inbound: FromHeaders, Reads: runs.AfterBegin}, ""},
		{&Config{Inbound: NoInbound, Reads: runs.FromPayload, Mode: runs.Exclusive}, ""},
		{&Config{Inbound: InboundFunc(func(*asynq.Task) ([]string, error) { return nil, nil }), Reads: runs.AfterBegin, Mode: runs.Supersede}, ""},
		{nil, "Config.Inbound"},
		{&Config{Inbound: FromHeaders}, "Config.Reads"},
		{&Config{Reads: runs.AfterBegin}, "Config.Inbound"},
		{&Config{Inbound: InboundSource(3), Reads: runs.AfterBegin}, "Config.Inbound"},
		{&Config{Inbound: InboundSource(0), Reads: runs.AfterBegin}, "Config.Inbound"},
		{&Config{Inbound: InboundFunc(nil), Reads: runs.AfterBegin}, "Config.Inbound"},
		{&Config{Inbound: FromHeaders, Reads: "sometimes"}, "Config.Reads"},
		{&Config{Inbound: FromHeaders, Reads: runs.AfterBegin, Mode: "shared"}, "Config.Mode"},
	} {
		a, err := New(new(runs.Keeper), c.config)
		switch {
		case c.want == "" && (err != nil || a == nil):
			t.Errorf("%+v: %v", c.config, err)
		case c.want != "" && (err == nil || a != nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v does not name %s", c.config, err, c.want)
		}
	}
	if _, err := New(nil, &Config{Inbound: FromHeaders, Reads: runs.AfterBegin}); err == nil || !strings.Contains(err.Error(), "keeper") {
		t.Errorf("nil keeper: %v", err)
	}
}

func TestConversationErrorNamesTheField(t *testing.T) {
	for _, c := range []struct {
		conversation Conversation
		want         string
	}{
		{Conversation{ID: "c", NoInbound: true}, ""},
		{Conversation{NoInbound: true}, "Conversation.ID"},
		{Conversation{ID: "c"}, "Conversation.Inbound"},
		{Conversation{ID: "c", Inbound: []string{"m"}, NoInbound: true}, "NoInbound"},
		{Conversation{ID: "c", Inbound: []string{""}}, "Inbound[0]"},
		{Conversation{ID: "c", NoInbound: true, Order: runs.Order{Number: 1}}, "Order.Source"},
		{Conversation{ID: "c", NoInbound: true, Stamp: -1}, "AsOf"},
		{Conversation{ID: strings.Repeat("c", 513), NoInbound: true}, "Conversation"},
	} {
		_, err := Headers(c.conversation)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want an error that names %q", c.conversation, err, c.want)
		}
	}
}

func TestStampIsBothOrderAndAsOf(t *testing.T) {
	h, err := Headers(Conversation{ID: "c", NoInbound: true, Stamp: 7})
	if err != nil {
		t.Fatal(err)
	}
	if h["fencedrun-order"] != "7 "+runs.StampSource || h["fencedrun-as-of"] != "7" {
		t.Errorf("headers %v, want the stamp as order and as-of", h)
	}
	h, err = Headers(Conversation{ID: "c", NoInbound: true, Stamp: 7, Order: runs.Order{Source: "messages", Number: 3}})
	if err != nil {
		t.Fatal(err)
	}
	if h["fencedrun-order"] != "3 messages" || h["fencedrun-as-of"] != "7" {
		t.Errorf("headers %v, want the order given and the stamp as as-of", h)
	}
}

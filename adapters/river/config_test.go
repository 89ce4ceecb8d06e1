package riverruns

import (
	"strings"
	"testing"

	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

func TestConfigErrorNamesTheField(t *testing.T) {
	keeper, err := runs.New(memledger.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	for _, c := range []struct {
		config *Config
		want   string // "" is no error
	}{
		{&Config{Inbound: FromArgs, Reads: runs.AfterBegin}, ""},
		{&Config{Inbound: NoInbound, Reads: runs.FromPayload, Mode: runs.Exclusive, Schema: "other"}, ""},
		{&Config{Inbound: InboundFunc(func(*rivertype.JobRow) ([]string, error) { return nil, nil }), Reads: runs.AfterBegin}, ""},
		{nil, "Config.Inbound"},
		{&Config{Inbound: FromArgs}, "Config.Reads"},
		{&Config{Reads: runs.AfterBegin}, "Config.Inbound"},
		{&Config{Inbound: InboundSource(3), Reads: runs.AfterBegin}, "Config.Inbound"},
		{&Config{Inbound: InboundFunc(nil), Reads: runs.AfterBegin}, "Config.Inbound"},
		{&Config{Inbound: FromArgs, Reads: "sometimes"}, "Config.Reads"},
		{&Config{Inbound: FromArgs, Reads: runs.AfterBegin, Mode: "shared"}, "Config.Mode"},
		{&Config{Inbound: FromArgs, Reads: runs.AfterBegin, Schema: strings.Repeat("s", 600)}, "Config.Schema"},
	} {
		p, err := NewPlugin(keeper, c.config)
		switch {
		case c.want == "" && (err != nil || p == nil):
			t.Errorf("%+v: %v", c.config, err)
		case c.want != "" && (err == nil || p != nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v does not name %s", c.config, err, c.want)
		}
	}
	if _, err := NewPlugin(nil, &Config{Inbound: FromArgs, Reads: runs.AfterBegin}); err == nil || !strings.Contains(err.Error(), "keeper") {
		t.Errorf("nil keeper: %v", err)
	}
}

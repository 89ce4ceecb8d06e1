package guides

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

type Receipt struct{ ID string }

type bankAPI struct{}

// FindRefund stands for the bank's own search by idempotency key.
func (bankAPI) FindRefund(context.Context, string) (*Receipt, error) { return nil, nil } //nolint:nilnil // not found

func Example_probe() {
	store := memledger.New()
	var bank bankAPI
	var refund = runs.Intent[Receipt]{
		Name:           "refund",
		ReadYourWrites: true, // what it does not show by then never happened
		Probe: func(ctx context.Context, q runs.Question) (runs.Found[Receipt], error) {
			r, err := bank.FindRefund(ctx, q.IdempotencyKey)
			if err != nil || r == nil {
				return runs.NotFound[Receipt](), err
			}
			return runs.Applied(*r, r.ID), nil
		},
	}
	keeper, err := runs.New(store, &runs.Config{Intents: []runs.Declared{refund}})
	if err != nil {
		panic(err)
	}
	defer keeper.Close()
	swept, err := keeper.Sweep(context.Background())
	fmt.Println(swept.Asked, err)
	// Output: 0 <nil>
}

// The probe that README.md shows is the one above.
func TestTheReadmeShowsATestedProbe(t *testing.T) {
	readme, err := os.ReadFile(root + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(readme), "## When something is unknown")
	shown := goBlock.FindStringSubmatch(after)
	if len(shown) < 2 || !strings.Contains(code(t), unindented(shown[1])) {
		t.Errorf("README.md shows what no test compiles:\n%s", shown)
	}
}

package transcript

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var support = Conversation{ID: "c", Turns: []Turn{
	{Agent, "How can I help?"}, // nobody asked yet
	{Customer, "Hi"},
	{Customer, "I am Ann Lee"},
	{Act, "Account has been pulled up for Ann Lee."},
	{Agent, "Hello Ann."},
	{Agent, "Which order?"},
	{Customer, "Order ID: 3348917502"},
	{Act, "Purchase validation in progress ..."},
	{Act, "Account has been pulled up for Ann Lee."}, // the same once more
	{Act, "Details have been entered."},
	{Customer, "Well?"},
	{Act, "The manager has been notified."},
	{Agent, "Done."},
	{Customer, "Bye"},
}}

func TestScriptHasBurstsWithWhatAGoodBotDoes(t *testing.T) {
	got := Scripts([]Conversation{support}, 1)[0]
	want := []Step{
		{
			Burst:   []Message{{"c-1/m01", "Hi"}, {"c-1/m02", "I am Ann Lee"}},
			Actions: []Action{{LookUpAccount, "Ann Lee", "Account has been pulled up for Ann Lee."}},
			Reply:   "Hello Ann. Which order?",
		},
		{
			Burst: []Message{{"c-1/m03", "Order ID: 3348917502"}},
			Actions: []Action{
				{ValidatePurchase, "3348917502", "Purchase validation in progress ..."},
				{MakeNote, "turn 9", "Details have been entered."},
			},
			Reply: taken,
		},
		{
			Burst:   []Message{{"c-1/m04", "Well?"}},
			Actions: []Action{{NotifyManager, "the case", "The manager has been notified."}},
			Reply:   "Done.",
		},
		{Burst: []Message{{"c-1/m05", "Bye"}}, Reply: farewell},
	}
	if diff := cmp.Diff(want, got.Steps, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got.Messages() != 5 {
		t.Errorf("%d messages, want 5", got.Messages())
	}
}

func TestConversationsRepeatUnderNewIDs(t *testing.T) {
	scripts := Scripts([]Conversation{support, {ID: "d", Turns: []Turn{{Customer, "Hi"}}}}, 5)
	var ids []string
	messages := map[string]bool{}
	for _, script := range scripts {
		ids = append(ids, script.ID)
		for _, step := range script.Steps {
			for _, message := range step.Burst {
				if messages[message.ID] {
					t.Errorf("message id %s twice", message.ID)
				}
				messages[message.ID] = true
			}
		}
	}
	if diff := cmp.Diff([]string{"c-1", "d-1", "c-2", "d-2", "c-3"}, ids); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestTheBotActsOnlyWhenABurstIsComplete(t *testing.T) {
	script := Scripts([]Conversation{support}, 1)[0]
	actions, reply := script.Answer([]string{"c-1/m01"}, []string{"c-1/m01"})
	if len(actions) != 0 || reply != keepGoing {
		t.Errorf("half a burst: %v, %q", actions, reply)
	}
	actions, reply = script.Answer([]string{"c-1/m01", "c-1/m02"}, []string{"c-1/m02"})
	if len(actions) != 1 || reply != script.Steps[0].Reply {
		t.Errorf("a whole burst: %v, %q", actions, reply)
	}
	actions, reply = script.Answer([]string{"c-1/m01", "c-1/m02", "c-1/m03"}, []string{"c-1/m01", "c-1/m03"})
	if len(actions) != 3 || reply != taken {
		t.Errorf("two bursts: %v, %q", actions, reply)
	}
}

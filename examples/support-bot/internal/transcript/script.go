package transcript

import (
	"fmt"
	"regexp"
	"strings"
)

// Message is what a customer sends.
type Message struct {
	ID   string
	Text string
}

// Action is something the bot does besides answering. Kind and Object together name it within a conversation: the same
// kind on the same object is the same action, however often it is asked for.
type Action struct {
	Kind   string
	Object string
	Text   string
}

// Kinds of actions.
const (
	LookUpAccount    = "look-up-account"
	ValidatePurchase = "validate-purchase"
	NotifyManager    = "notify-manager"
	MakeNote         = "note"
)

// Step is a burst of messages and what a good bot does once the burst is complete.
type Step struct {
	Burst   []Message
	Actions []Action
	Reply   string
}

// Script is a conversation to be played.
type Script struct {
	ID    string
	Steps []Step

	stepOf map[string]int // by message id
}

const (
	keepGoing = "Thank you, I am reading along. Please go on."
	taken     = "I have taken care of that."
	farewell  = "You are welcome. Have a nice day!"
)

// Scripts makes n scripts out of the conversations, repeating them under new ids when n is larger than their number.
func Scripts(conversations []Conversation, n int) []*Script {
	scripts := make([]*Script, n)
	for i := range scripts {
		conversation := conversations[i%len(conversations)]
		scripts[i] = newScript(conversation, fmt.Sprintf("%s-%d", conversation.ID, 1+i/len(conversations)))
	}
	return scripts
}

func newScript(conversation Conversation, id string) *Script {
	script := &Script{ID: id, stepOf: map[string]int{}}
	var (
		order     string // the last order number that the customer gave
		lastSpoke string
		messages  int
		done      = map[Action]bool{}
	)
	for i, turn := range conversation.Turns {
		if turn.Speaker == Customer {
			if lastSpoke != Customer {
				script.Steps = append(script.Steps, Step{})
			}
			step := &script.Steps[len(script.Steps)-1]
			messages++
			message := Message{ID: fmt.Sprintf("%s/m%02d", id, messages), Text: turn.Text}
			step.Burst = append(step.Burst, message)
			script.stepOf[message.ID] = len(script.Steps) - 1
			if number := orderNumber.FindString(turn.Text); number != "" {
				order = number
			}
		} else if len(script.Steps) > 0 { // a greeting before the customer said a word answers nothing
			step := &script.Steps[len(script.Steps)-1]
			if turn.Speaker == Agent {
				step.Reply = strings.TrimSpace(step.Reply + " " + turn.Text)
			} else if action := newAction(turn.Text, order, i); !done[action.name()] {
				done[action.name()] = true
				step.Actions = append(step.Actions, action)
			}
		}
		lastSpoke = turn.Speaker
	}
	for i := range script.Steps {
		step := &script.Steps[i]
		switch {
		case step.Reply != "":
		case i == len(script.Steps)-1:
			step.Reply = farewell
		case len(step.Actions) > 0:
			step.Reply = taken
		default:
			step.Reply = keepGoing
		}
	}
	return script
}

var (
	pulledUp    = regexp.MustCompile(`^Account has been pulled up for (.+?)\.?$`)
	orderNumber = regexp.MustCompile(`\b[0-9]{8,}\b`)
)

// newAction reads an action turn. Its object is the business's: an account, an order, the case, a place in the
// conversation; never the wording.
func newAction(text, order string, turn int) Action {
	action := Action{Kind: MakeNote, Object: fmt.Sprintf("turn %d", turn), Text: text}
	if account := pulledUp.FindStringSubmatch(text); account != nil {
		action.Kind, action.Object = LookUpAccount, account[1]
	} else if strings.HasPrefix(text, "Purchase validation") {
		action.Kind, action.Object = ValidatePurchase, "the purchase"
		if order != "" {
			action.Object = order
		}
	} else if strings.HasPrefix(text, "The manager has been notified") {
		action.Kind, action.Object = NotifyManager, "the case"
	}
	return action
}

func (a Action) name() Action { return Action{Kind: a.Kind, Object: a.Object} }

// Messages counts the customer's messages.
func (s *Script) Messages() int { return len(s.stepOf) }

// Answer is what a good bot does when the messages that arrived are those, and the open ones are to be answered: the
// actions of every burst that is complete and has an open message, and what to say.
func (s *Script) Answer(arrived, open []string) ([]Action, string) {
	have := map[string]bool{}
	for _, id := range arrived {
		have[id] = true
	}
	wanted := map[int]bool{}
	for _, id := range open {
		if step, ok := s.stepOf[id]; ok {
			wanted[step] = true
		}
	}
	var actions []Action
	reply := keepGoing
	for i, step := range s.Steps {
		if !wanted[i] {
			continue
		}
		if !have[step.Burst[len(step.Burst)-1].ID] {
			reply = keepGoing
			continue
		}
		actions = append(actions, step.Actions...)
		reply = step.Reply
	}
	return actions, reply
}

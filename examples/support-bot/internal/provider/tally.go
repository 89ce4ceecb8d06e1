package provider

// Tally is what a log adds up to. All counting of duplicates in this example is done here, from what the provider really
// did; nobody's own record is asked.
type Tally struct {
	Messages         int // messages that came in
	Replies          int // replies that went out
	Answers          int // messages answered, counted as often as each was answered
	DuplicateAnswers int // answers beyond the first, per message
	Effects          int // actions carried out
	DuplicateEffects int // beyond the first, per (conversation, kind, object)
	Unanswered       []string
}

type effect struct{ conversation, kind, object string }

// Count adds up a log.
func Count(entries []Entry) Tally {
	var (
		tally    Tally
		received []string
		answers  = map[string]int{}
		effects  = map[effect]int{}
	)
	for _, entry := range entries {
		switch entry.Did {
		case Received:
			received = append(received, entry.Message)
		case Replied:
			tally.Replies++
			for _, id := range entry.Answers {
				answers[id]++
				tally.Answers++
				if answers[id] > 1 {
					tally.DuplicateAnswers++
				}
			}
		case Acted:
			tally.Effects++
			key := effect{entry.Conversation, entry.Kind, entry.Object}
			if effects[key]++; effects[key] > 1 {
				tally.DuplicateEffects++
			}
		}
	}
	tally.Messages = len(received)
	for _, id := range received {
		if answers[id] == 0 {
			tally.Unanswered = append(tally.Unanswered, id)
		}
	}
	return tally
}

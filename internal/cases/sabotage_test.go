package cases

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencedrun/fencedrun/internal/sabotage"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/memledger"
)

// A story that cannot fail proves nothing. Here stories are told with the very rules switched off
// that they are about, and have to notice. Where twice is set, the customer really gets it twice.
var broken = []struct {
	name  string
	story story
	off   []sabotage.Name
	twice bool
}{
	{"F02/timeout", timeoutThenRetry, rules(sabotage.StaleDeliveryWrites), false},
	{"F02/stale failure", staleFailure, rules(sabotage.StaleDeliveryWrites), false},
	{"F02/shutdown", shutdownRequeues, rules(sabotage.NoFence), false},
	{"F02/shutdown numbers", shutdownRequeues, rules(sabotage.RedeliveryIsNewRun), false},
	{"F02/same moment", bothAskAtOnce, rules(sabotage.NoFence, sabotage.PendingRetried), true},
	{"F02/during the call", redeliveredInsideTheCall, rules(sabotage.PendingRetried), true},
	{"F02/during the call, next", redeliveredInsideTheCall, rules(sabotage.WaitsForgotten), false},
	{"F02/waiting", waitsForTheOtherDelivery, rules(sabotage.PendingRetried), true},
	{"F03/four copies", shownAgainAndAgain, rules(sabotage.StaleDeliveryWrites), false},
	{"F03/rescued when done", rescuedAfterItWasDone, rules(sabotage.FinishedRunsAgain), false},

	{"F04/two", burstOfTwo, rules(sabotage.NoSupersede), false},
	{"F04/dead newer run", newerRunDies, rules(sabotage.LapsedLeaseSupersedes), false},
	{"F04/three", burstOfThree, rules(sabotage.NoFence), false},
	{"F04/ten", streamOfTen, rules(sabotage.NoFence, sabotage.NoConversationCheck, sabotage.AnswersIgnored), true},
	{"F04/same millisecond", sameMillisecond(0, 0, false), rules(sabotage.NoSupersede, sabotage.NoConversationCheck, sabotage.AnswersIgnored), true},
	{"F04/peers", sameMillisecond(0, 1, true), rules(sabotage.NoConversationCheck, sabotage.AnswersIgnored), true},
	{"F04/old job last", oldJobBeginsLast, rules(sabotage.SupersededIsFinal), false},
	{"F04/old job knocks", oldJobKnocksFirst, rules(sabotage.NoSupersede), false},

	{"F05/too late", interruptTooLate, rules(sabotage.AnswersIgnored), true},
	{"F05/too late, unseen", interruptTooLate, rules(sabotage.NoConversationCheck), false},
	{"F05/unnamed", interruptUnnamed, rules(sabotage.UnresolvedIgnored), false},
	{"F05/unnamed, seen", interruptUnnamed, rules(sabotage.UnresolvedBySeqOnly, sabotage.NoConversationCheck, sabotage.AnswersIgnored), true},
	{"F05/fails", interruptedCallFails, rules(sabotage.AnswersIgnored), false},
	{"F05/unknown", interruptedCallUnknown(true), rules(sabotage.AnswersIgnored), true},
	{"F05/timeout is a no", interruptedCallUnknown(true), rules(sabotage.TimeoutMeansFailed), false},
	{"F05/unknown ends", interruptedCallUnknown(false), rules(sabotage.SupersededIsFinal), false},
	{"F05/killed", killedWhileInterrupted, rules(sabotage.ExpiredBecomesFailed), false},
	{"F05/killed, for ever", killedWhileInterrupted, rules(sabotage.NeverLapses), false},

	{"F06/two jobs", oneMessageTwoJobs, rules(sabotage.PendingRetried), true},
	{"F06/swallowed", secondJobSwallowsTheRefusal, rules(sabotage.EndUnchecked), false},

	{"F10/other words", otherWords, rules(sabotage.ParamsIgnored), false},
	{"F10/numbers", numberFormats, rules(sabotage.ParamsIgnored), false},
	{"F10/text in the key", textInTheKey, rules(sabotage.OwnEarlierCovered), false},
	{"F10/text in the key, unchecked", textInTheKey, rules(sabotage.NoConversationCheck), false},
	{"F10/text in the key, without end", textInTheKey, rules(sabotage.RefusedForEver), false},
	{"F10/named answers", textInTheKeyWithAnswers, rules(sabotage.AnswersIgnored), true},

	{"F11/count in the key", partCountInTheKey, rules(sabotage.OwnEarlierCovered), false},
	{"F11/unknown", partUnknown, rules(sabotage.UnresolvedIgnored), false},
	{"F11/unknown, again", partUnknown, rules(sabotage.AmbiguousRetried), false},
	{"F11/goes on", partUnknownGoesOn, rules(sabotage.EndUnchecked), false},
	{"F11/message between", messageBetweenParts, rules(sabotage.NoFence), false},
	{"F11/message after", messageAfterAPart, rules(sabotage.NoSupersede), false},

	{"F12/inside", cancelling(endsInsideTheEffect), rules(sabotage.SettleByHandlerCtx), false},
	{"F12/before the settle", cancelling(endsBeforeSettle), rules(sabotage.SettleByHandlerCtx), false},
	{"F12/during the settle", cancelling(endsDuringSettle), rules(sabotage.SettleByHandlerCtx), false},
	{"F12/failed settle", cancelling(ledgerFailsOnceAtShutdown), rules(sabotage.SettleByHandlerCtx), false},
	{"F12/hanging ledger", cancelling(ledgerHangsAtShutdown), rules(sabotage.AmbiguousRetried), true},

	{"F19/panic in an effect", effectPanics, rules(sabotage.AmbiguousRetried), false},
	{"F19/hung", newerJobPassesAHungOne, rules(sabotage.NoFence, sabotage.NoConversationCheck, sabotage.AnswersIgnored), true},
	{"F19/queue's ctx", renewalEndsWithTheQueuesCtx, rules(sabotage.BeatsForEver), false},
}

func rules(names ...sabotage.Name) []sabotage.Name { return names }

func cancelling(s endingStory) story {
	return func(w *world) { s(w, cancelled(w)) }
}

func TestStoriesNoticeWhenTheirRuleIsOff(t *testing.T) {
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			words := make([]string, len(b.off))
			for i, n := range b.off {
				words[i] = n.String()
			}
			fails(t, b.story, openers[0], b.twice, strings.Join(words, " "), b.off...)
		})
	}
}

// forgetful is a ledger in each process's own memory: what many a dedupe store is.
var forgetful = opener{"forgetful", func(*testing.T) func() (ledger.Store, error) {
	return func() (ledger.Store, error) { return memledger.New(), nil }
}}

func TestStoriesNoticeALedgerThatForgets(t *testing.T) {
	t.Run("F06/restart", func(t *testing.T) { fails(t, secondJobAfterRestart, forgetful, true, "forgetful") })
	t.Run("F06/eleven jobs", func(t *testing.T) {
		fails(t, elevenJobs(30*time.Second, false, false), forgetful, true, "forgetful")
	})
	t.Run("F11/parts", func(t *testing.T) { fails(t, partFails(3), forgetful, true, "forgetful") })
	t.Run("F10/other words", func(t *testing.T) { fails(t, otherWords, forgetful, true, "forgetful") })
}

// fails tells a story that has to fail, and says whether the customer got something twice.
func fails(t *testing.T, s story, o opener, twice bool, why string, off ...sabotage.Name) {
	t.Helper()
	notes := &notebook{}
	var duplicated bool
	synctest.Test(t, func(t *testing.T) {
		notes.TB = t
		w := newWorld(notes, o.open(t), sabotage.Of(off...))
		told := make(chan struct{})
		go func() {
			defer close(told)
			s(w)
		}()
		<-told
		w.stop()
		duplicated = w.prov.duplicated()
	})
	if len(notes.failures) == 0 {
		t.Fatalf("%s, and the story noticed nothing", why)
	}
	if duplicated != twice {
		t.Errorf("%s: the customer got something twice: %v, want %v; noticed: %s", why, duplicated, twice, notes.failures[0])
	}
	t.Logf("%s: noticed: %s", why, notes.failures[0])
}

// notebook is a testing.TB that keeps failures for itself.
type notebook struct {
	testing.TB
	mu       sync.Mutex
	failures []string
}

func (n *notebook) Errorf(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failures = append(n.failures, fmt.Sprintf(format, args...))
}

func (n *notebook) Fatalf(format string, args ...any) {
	n.Errorf(format, args...)
	runtime.Goexit()
}

package main

import "time"

// How fast everything goes. A real support desk is slower by a factor of ten to a hundred; the ratios are what matters.
const (
	thinkMin = 150 * time.Millisecond // of the model
	thinkMax = 400 * time.Millisecond

	deskDeadline = time.Second // how long a request to the help desk may take

	ledgerLease   = 2 * time.Second      // how long a run counts as alive after its last heartbeat
	effectTimeout = deskDeadline * 3 / 2 // of an effect; its claim lapses after twice that

	typeMin  = 15 * time.Millisecond // between two messages of a burst
	typeMax  = 60 * time.Millisecond
	pauseMin = 900 * time.Millisecond // after a burst, in which a good bot answers
	pauseMax = 1400 * time.Millisecond

	arrival     = 200 * time.Millisecond // between the starts of two conversations
	arrivalMany = 500 * time.Millisecond // the same after the first dozen

	killMin    = 500 * time.Millisecond // between two kills
	killMax    = 1500 * time.Millisecond
	restartMin = 300 * time.Millisecond // how long a killed worker stays away; longer than River takes to write completions
	restartMax = 600 * time.Millisecond

	againMin = 40 * time.Millisecond // after the start of a delivery, until its second one
	againMax = 300 * time.Millisecond

	orphanAfter = 1500 * time.Millisecond // in the drain: at work for the queue, in nobody's hands
	startLimit  = 30 * time.Second        // for a child process
	stopLimit   = 4 * time.Second
)

package ledgertest

var ledgerTests = concat(racingTests, lostTests, clockTests, recordTests, costTests)

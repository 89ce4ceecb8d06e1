package ledgertest

var ledgerTests = concat(lostTests)

package sqliteledger

import "embed"

//go:embed sql/*.sql
var sqlFiles embed.FS

// query is one text of sql/. Its address is its identity, so that a connection finds the
// statement it has prepared.
type query struct{ text string }

func file(name string) *query {
	text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err)
	}
	return &query{string(text)}
}

var (
	beginTx    = &query{"begin immediate"}
	commitTx   = &query{"commit"}
	rollbackTx = &query{"rollback"}
	syncFull   = &query{"pragma synchronous = full"}
	syncNormal = &query{"pragma synchronous = normal"}

	peek       = file("peek")
	load       = file("load")
	insert     = file("insert")
	update     = file("update")
	updateDue  = file("update_due")
	absent     = file("absent")
	put        = file("put")
	remove     = file("delete")
	lease      = file("lease")
	unlease    = file("unlease")
	findHome   = file("home")
	moveIn     = file("move_in")
	moveOut    = file("move_out")
	drop       = file("drop")
	dropRows   = file("drop_rows")
	dropLeases = file("drop_leases")
	renew      = file("renew")
	renewed    = file("renewed")
	buryRun    = file("bury")
	exhume     = file("exhume")
	now        = file("now")
	scanOpen   = file("scan_open")
	scanDue    = file("scan_due")
	scanRows   = file("scan_rows")
	writable   = file("writable")
	mainFile   = file("main_file")
)

package checkup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"
)

// applicationID marks a file as a ledger of this library, as package sqliteledger does: "fndr".
const applicationID = 0x666e6472

func checkSQLite(ctx context.Context, l *list, t *Target) {
	path, err := filepath.Abs(t.SQLite)
	if err != nil {
		path = t.SQLite
	}
	// Only looked at by name: opening and closing it other than with SQLite gives up this
	// process's locks on it.
	info, err := os.Stat(path)
	switch {
	case err != nil:
		l.problem("file", "there is no file to look at: "+err.Error(), "", "Is the path right? A service makes the file when it starts.")
		return
	case info.IsDir():
		l.problem("file", path+" is a directory", "", "Give the path of the file in it.")
		return
	}
	l.fileSystem(path)
	if wal, err := os.Stat(path + "-wal"); err == nil {
		l.wal(wal.Size())
	}
	l.ok("synchronous", "the library itself flushes what must not be lost (synchronous=FULL), whatever the file's settings")
	if l.file(ctx, path) {
		l.busy(ctx, path)
	}
}

// source is how the driver calls the file.
func source(path, options string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a Windows drive
	}
	return (&url.URL{Scheme: "file", OmitHost: true, Path: path}).String() + "?_dqs=0" + options
}

// fileSystem judges where the file lies.
func (l *list) fileSystem(path string) {
	fs, err := statfs(path)
	if err != nil {
		l.unseen("file_system", "the file system", err, "It must be a local disk.")
		return
	}
	l.judgeFileSystem(fs)
}

// fileSystem is where a file lies.
type fileSystem struct {
	name       string // "" if it is none of those that matter
	kind       fsKind
	readOnly   bool
	free, size uint64 // bytes
}

type fsKind int

const (
	local     fsKind = iota
	network          // it does not lock as SQLite needs it
	forgetful        // gone with the machine, or with the container
	userSpace        // nobody knows
)

func (l *list) judgeFileSystem(fs fileSystem) {
	switch fs.kind {
	case network:
		l.problem("file_system", "the file is on a network file system ("+fs.name+")", "It does not lock as SQLite needs it: two processes may both claim, or the file breaks.", "Move it to a local disk, or use Postgres or Redis.")
	case forgetful:
		l.problem("file_system", "the file is on "+fs.name+", which is gone with the machine or the container", "What was claimed is forgotten then, and done again.", "Move it to a disk, or to a volume of the container.")
	case userSpace:
		l.warn("file_system", "the file is on a file system in user space ("+fs.name+")", "Many of them do not lock, or do not flush, as SQLite needs it.", "Make sure that it does, or move the file to a local disk.")
	default:
		l.ok("file_system", "the file is on a local file system")
	}
	if fs.readOnly {
		l.problem("read_only", "the file system is mounted read-only", "The ledger cannot be written: every claim fails.", "Mount it read-write. Did it fail, and the system protected it?")
	}
	const little = 100 << 20
	if fs.size > 0 && fs.free < little {
		l.warn("disk", fmt.Sprintf("%d MB are free on the disk", fs.free>>20), "Without space nothing can be claimed, and effects are not made.", "Make room.")
	}
}

// wal judges the size of the log that is written back to the file now and then.
func (l *list) wal(size int64) {
	const much = 64 << 20
	if size > much {
		l.warn("wal", fmt.Sprintf("the file's log (-wal) has %d MB", size>>20), "It is written back only when nobody reads what is older: somebody has been reading for a long time.", "Look for a program that keeps the file open in a transaction, such as a backup.")
		return
	}
	l.ok("wal", "the file's log is small")
}

// file looks into the file without writing. It returns whether it is a ledger.
func (l *list) file(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	db, err := sql.Open("sqlite", source(path, "&mode=ro&_query_only=1&_busy_timeout=2000"))
	if err != nil {
		l.unseen("file", "the file", err, "")
		return false
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	var id int64
	var version int
	var mode string
	err = errors.Join(
		db.QueryRowContext(ctx, "pragma application_id").Scan(&id),
		db.QueryRowContext(ctx, "pragma user_version").Scan(&version),
		db.QueryRowContext(ctx, "pragma journal_mode").Scan(&mode),
	)
	switch {
	case err != nil && isCode(err, codeNotADB):
		l.problem("file", "the file is no SQLite database", "", "Is the path right? If it once was a ledger, restore it from a backup.")
		return false
	case err != nil:
		l.unseen("file", "the file", err, "May this account read it, and write its directory?")
		return false
	case id != applicationID:
		l.problem("file", "the file is a SQLite database, but no ledger", "A service refuses it.", "Is the path right? A ledger needs a file of its own.")
		return false
	}
	l.ok("file", fmt.Sprintf("the file is a ledger of version %d", version))
	if mode == "wal" {
		l.ok("journal_mode", "journal_mode is wal")
	} else {
		l.warn("journal_mode", "journal_mode is "+mode, "Readers and writers wait for each other, until a service that starts sets it back to wal.", "Find out who changed it. pragma journal_mode = wal, while nobody uses the file.")
	}
	l.intact(ctx, db)
	return true
}

func (l *list) intact(ctx context.Context, db *sql.DB) {
	faults, err := quickCheck(ctx, db)
	switch {
	case err != nil && isCode(err, codeCorrupt):
		faults = append(faults, err.Error())
	case err != nil && ctx.Err() != nil:
		l.hidden("integrity", "could not look at the whole file", fmt.Sprintf("It is too large to be checked in %v.", bound), "Run pragma quick_check with the sqlite3 program.")
		return
	case err != nil:
		l.unseen("integrity", "the whole file", err, "Run pragma quick_check with the sqlite3 program.")
		return
	case len(faults) == 1 && faults[0] == "ok":
		l.ok("integrity", "the file is intact (quick_check)")
		return
	}
	l.problem("integrity", "the file is damaged: "+strings.ReplaceAll(strings.Join(faults, "; "), "\n", " "), "What it says cannot be trusted, and effects may be done again.",
		"Stop the service. Save all three files, then restore a backup or use the sqlite3 program's .recover. Was the file copied while it was in use?")
}

// quickCheck returns the first faults, or "ok".
func quickCheck(ctx context.Context, db *sql.DB) (faults []string, err error) {
	rows, err := db.QueryContext(ctx, "pragma quick_check(3)")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var fault string
		if err := rows.Scan(&fault); err != nil {
			return faults, err
		}
		faults = append(faults, fault)
	}
	return faults, rows.Err()
}

// Primary result codes of SQLite.
const (
	codeBusy     = 5
	codeReadOnly = 8
	codeCorrupt  = 11
	codeCantOpen = 14
	codeNotADB   = 26
)

func isCode(err error, code int) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == code
}

// busyBound is how long the file may be kept from other writers before that is a finding; a claim
// keeps it for as long as a flush takes.
const busyBound = 3 * time.Second

// busy takes the write lock and gives it back, without writing.
func (l *list) busy(ctx context.Context, path string) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	db, err := sql.Open("sqlite", source(path, fmt.Sprintf("&mode=rw&_busy_timeout=%d", busyBound.Milliseconds())))
	if err != nil {
		l.unseen("busy", "whether the file can be written", err, "")
		return
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err == nil {
		defer conn.Close()
		if _, err = conn.ExecContext(ctx, "begin immediate"); err == nil {
			_, err = conn.ExecContext(ctx, "rollback")
		}
	}
	switch {
	case err == nil:
		l.ok("busy", "the file can be written")
	case isCode(err, codeBusy):
		l.problem("busy", fmt.Sprintf("another process has kept the file from being written for %v", busyBound), "Claims wait for it, and fail after Config.BusyTimeout.", "Look for a program that has the file open in a transaction: a shell, a backup, a stopped worker.")
	case isCode(err, codeReadOnly), isCode(err, codeCantOpen):
		l.warn("busy", "this account may not write the file or its directory", "If the service runs under it, every claim fails.", "Look at the permissions of the file, of -wal and -shm beside it, and of the directory.")
	default:
		l.unseen("busy", "whether the file can be written", err, "")
	}
}

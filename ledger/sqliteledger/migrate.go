package sqliteledger

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

// applicationID marks a SQLite file as a ledger of this library: "fndr".
const applicationID = 0x666e6472

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations are the texts that lead from version i to i+1.
var migrations = func() []string {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql") // sorted
	if err != nil {
		panic(err)
	}
	texts := make([]string, len(names))
	for i, name := range names {
		text, err := migrationFiles.ReadFile(name)
		if err != nil {
			panic(err)
		}
		texts[i] = string(text)
	}
	return texts
}()

var errForeign = errors.New("it is a SQLite database, but no ledger: a ledger needs a file of its own")

// version returns the version of the file's tables, 0 for a file that is empty.
func (s *Store) version(ctx context.Context) (int, error) {
	var id, version, objects int
	err := s.writer.conn.QueryRowContext(ctx, `select
		(select application_id from pragma_application_id),
		(select user_version from pragma_user_version),
		(select count(*) from sqlite_schema)`).Scan(&id, &version, &objects)
	switch {
	case err != nil:
		return 0, err
	case id == 0 && version == 0 && objects == 0:
		return 0, nil
	case id != applicationID:
		return 0, errForeign
	case version > len(migrations):
		return 0, fmt.Errorf("its tables are of version %d and this library knows %d: a newer version has migrated it", version, len(migrations))
	}
	return version, nil
}

// migrate brings the tables up to date, in the transaction of the caller: of many processes that
// start at once, one does it and the others find it done.
func (s *Store) migrate(ctx context.Context) error {
	from, err := s.version(ctx)
	if err != nil || from == len(migrations) {
		return err
	}
	for i := from; i < len(migrations); i++ {
		if _, err := s.writer.conn.ExecContext(ctx, migrations[i]); err != nil {
			return fmt.Errorf("migration %d: %w", i+1, err)
		}
	}
	_, err = s.writer.conn.ExecContext(ctx, fmt.Sprintf("pragma application_id = %d; pragma user_version = %d", applicationID, len(migrations)))
	return err
}

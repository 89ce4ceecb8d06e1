package runs

import "errors"

// NotApplied marks err as saying that the effect is known not to have happened, so that it may
// be tried again (rule S2.1). Mark only what is certain: a connection that was refused, a
// response that says so. A timeout is not a "no".
func NotApplied(err error) error {
	if err == nil {
		return nil
	}
	return notAppliedError{err}
}

type notAppliedError struct{ error }

func (e notAppliedError) NotApplied() bool { return true }
func (e notAppliedError) Unwrap() error    { return e.error }

// notApplied reports whether err says that the effect certainly did not happen: by itself, by
// a method NotApplied() bool, or by the intent's classifier. Of several joined errors every
// one must say so: one part that may have applied makes the whole unknown.
func notApplied(err error, classify func(error) bool) bool {
	for at := err; at != nil; {
		if says, ok := at.(interface{ NotApplied() bool }); ok {
			// The outermost that says anything knows best.
			return says.NotApplied() || classify != nil && classify(err)
		}
		switch x := at.(type) { //nolint:errorlint // it walks the chain itself, one error at a time
		case interface{ Unwrap() []error }:
			return every(x.Unwrap(), classify)
		case interface{ Unwrap() error }:
			at = x.Unwrap()
		default:
			at = nil
		}
	}
	return classify != nil && classify(err)
}

func every(errs []error, classify func(error) bool) bool {
	said := false
	for _, err := range errs {
		if err == nil {
			continue
		}
		if !notApplied(err, classify) {
			return false
		}
		said = true
	}
	return said
}

// asRefused returns the refusal in err's chain, if there is one.
func asRefused(err error) *RefusedError {
	refused, _ := errors.AsType[*RefusedError](err)
	return refused
}

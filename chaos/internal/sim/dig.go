package sim

import (
	"context"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/runs"
)

// digger hashes values, whatever they are made of. Pointers count for what they point to, maps
// in no order; functions, channels, contexts and the world itself count for nothing.
type digger struct {
	h     uint64
	w     *World
	rows  bool                      // what is hashed is a row: the ids in it are used
	known map[unsafe.Pointer]uint64 // what hashes of pointers came to; 0: not yet
}

func (d *digger) add(v uint64) {
	d.h = (d.h ^ v) * 0x9e3779b97f4a7c15
	d.h ^= d.h >> 29
}

// text hashes a string. A tag counts for the state of the ledger that it names.
func (d *digger) text(s string) {
	if state, ok := d.w.db.tags[s]; ok {
		if s == d.w.db.tag {
			state = 1
		}
		d.add(state)
		return
	}
	if d.rows && len(s) == 26 {
		d.w.db.used[s] = true
	}
	d.add(hashString(s))
}

func (d *digger) any(v any) {
	if v == nil {
		d.add(0)
		return
	}
	digInterface(d, unsafe.Pointer(&v)) //nolint:gosec // nothing is written through it
}

type dig func(d *digger, p unsafe.Pointer)

var (
	digs sync.Map // reflect.Type → dig

	contextType  = reflect.TypeFor[context.Context]()
	digInterface = digOf(reflect.TypeFor[any]())
	digRow       = digOf(reflect.TypeFor[ledger.Row]())
)

// digOf returns how values of a type are hashed.
func digOf(t reflect.Type) dig {
	if known, ok := digs.Load(t); ok {
		f, _ := known.(dig)
		return f
	}
	// A type may contain itself: whoever meets it meanwhile looks it up later.
	digs.Store(t, dig(func(d *digger, p unsafe.Pointer) { digOf(t)(d, p) }))
	f := newDig(t)
	digs.Store(t, f)
	return f
}

func nothing(*digger, unsafe.Pointer) {}

// outside are the types that are not the library's memory of a world.
var outside = map[reflect.Type]bool{
	reflect.TypeFor[seam.Seam]():      true,
	reflect.TypeFor[runs.Config]():    true,
	reflect.TypeFor[ledger.Options](): true,
	reflect.TypeFor[ledger.Store]():   true,
	reflect.TypeFor[World]():          true,
	reflect.TypeFor[proc]():           true,
}

func newDig(t reflect.Type) dig {
	switch {
	case outside[t], t.PkgPath() == "sync", t.Implements(contextType), reflect.PointerTo(t).Implements(contextType):
		return nothing
	case t == reflect.TypeFor[time.Time]():
		return func(d *digger, p unsafe.Pointer) { d.add(uint64((*time.Time)(p).UnixNano())) }
	case t == reflect.TypeFor[lock]():
		return func(d *digger, p unsafe.Pointer) {
			l := (*lock)(p)
			if l.held {
				d.add(1)
			}
			for _, t := range l.waiters {
				d.add(t.key)
			}
		}
	}
	switch t.Kind() {
	case reflect.Bool, reflect.Int8, reflect.Uint8:
		return func(d *digger, p unsafe.Pointer) { d.add(uint64(*(*uint8)(p))) }
	case reflect.Int16, reflect.Uint16:
		return func(d *digger, p unsafe.Pointer) { d.add(uint64(*(*uint16)(p))) }
	case reflect.Int32, reflect.Uint32, reflect.Float32:
		return func(d *digger, p unsafe.Pointer) { d.add(uint64(*(*uint32)(p))) }
	case reflect.Int, reflect.Uint, reflect.Int64, reflect.Uint64, reflect.Float64:
		return func(d *digger, p unsafe.Pointer) { d.add(*(*uint64)(p)) }
	case reflect.String:
		return func(d *digger, p unsafe.Pointer) { d.text(*(*string)(p)) }
	case reflect.Slice:
		return digSlice(t)
	case reflect.Array:
		elem, size := digOf(t.Elem()), t.Elem().Size()
		return func(d *digger, p unsafe.Pointer) {
			for i := range t.Len() {
				elem(d, unsafe.Add(p, uintptr(i)*size))
			}
		}
	case reflect.Struct:
		return digStruct(t)
	case reflect.Map:
		return digMap(t)
	case reflect.Pointer:
		return digPointer(t)
	case reflect.Interface:
		return digAny(t)
	}
	return nothing // functions and channels
}

func digSlice(t reflect.Type) dig {
	elem, size := digOf(t.Elem()), t.Elem().Size()
	type header struct {
		data     unsafe.Pointer
		len, cap int
	}
	return func(d *digger, p unsafe.Pointer) {
		s := (*header)(p)
		d.add(uint64(s.len))
		for i := range s.len {
			elem(d, unsafe.Add(s.data, uintptr(i)*size))
		}
	}
}

func digStruct(t reflect.Type) dig {
	type field struct {
		at  uintptr
		dig dig
	}
	var fields []field
	for f := range t.Fields() {
		switch f.Type.Kind() {
		case reflect.Func, reflect.Chan, reflect.UnsafePointer:
			continue
		}
		if outside[f.Type] || f.Type.PkgPath() == "sync" || f.Type.Implements(contextType) {
			continue
		}
		fields = append(fields, field{f.Offset, digOf(f.Type)})
	}
	return func(d *digger, p unsafe.Pointer) {
		for _, f := range fields {
			f.dig(d, unsafe.Add(p, f.at))
		}
	}
}

func digMap(t reflect.Type) dig {
	key, elem := digOf(t.Key()), digOf(t.Elem())
	return func(d *digger, p unsafe.Pointer) {
		m := reflect.NewAt(t, p).Elem()
		k, v := reflect.New(t.Key()), reflect.New(t.Elem())
		before, sum := d.h, uint64(m.Len())
		for each := m.MapRange(); each.Next(); {
			k.Elem().SetIterKey(each)
			v.Elem().SetIterValue(each)
			d.h = 0
			key(d, k.UnsafePointer())
			elem(d, v.UnsafePointer())
			sum += d.h ^ d.h>>32
		}
		d.h = before
		d.add(sum)
	}
}

func digPointer(t reflect.Type) dig {
	if outside[t.Elem()] {
		return nothing
	}
	elem := digOf(t.Elem())
	return func(d *digger, p unsafe.Pointer) {
		q := *(*unsafe.Pointer)(p)
		if q == nil {
			d.add(0)
			return
		}
		h, ok := d.known[q]
		if !ok {
			d.known[q] = 1 // whoever comes back to it on the way
			before := d.h
			d.h = 0
			elem(d, q)
			h = d.h
			d.h, d.known[q] = before, h
		}
		d.add(h)
	}
}

func digAny(t reflect.Type) dig {
	return func(d *digger, p unsafe.Pointer) {
		v := reflect.NewAt(t, p).Elem().Elem()
		if !v.IsValid() {
			d.add(0)
			return
		}
		c := v.Type()
		d.add(hashString(c.String()))
		inner := digOf(c)
		held := reflect.New(c)
		held.Elem().Set(v)
		inner(d, held.UnsafePointer())
	}
}

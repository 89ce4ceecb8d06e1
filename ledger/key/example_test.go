package key_test

import (
	"fmt"

	"github.com/fencedrun/fencedrun/ledger/key"
)

func ExampleNew() {
	k := key.New("order", "A-17", "line", 2)
	fmt.Println(k)
	fmt.Println(k == key.New("line", 2, "order", "A-17"))

	// What cannot be said the same way twice is no key.
	fmt.Println(key.New("order", "A-17", "amount", 3.92).Err())
	// Output:
	// {"line":2,"order":"A-17"}
	// true
	// fencedrun: key: the value of "amount" is of type float64, but keys hold strings, integers and bools only
}

func ExampleEffectID() {
	id := key.EffectID("", "thread-7", "reply", key.ID("m1"))
	fmt.Println(id)
	fmt.Println(key.IdempotencyKey(id))
	// Output:
	// fjjf5achc7h2bifo52g0jp2rlo3jjp0882ep06a8
	// fr1_fjjf5achc7h2bifo52g0jp2rlo3jjp0882ep06a8
}

func ExampleCanonicalValue() {
	params, err := key.CanonicalValue(map[string]any{"currency": "EUR", "amount": 392})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n%s\n", params, key.Fingerprint(params))

	_, err = key.CanonicalValue(map[string]any{"order": map[string]any{"id": 9007199254740993}})
	fmt.Println(err)
	// Output:
	// {"amount":392,"currency":"EUR"}
	// 0038df3a6b1ff05cb7f8ce27f40ff8d47d69e698e2a4507009135da67689e55d
	// fencedrun: canonical JSON: integer that a float64 cannot hold exactly (write it as a string) at "/order/id"
}

package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/likenessdb/likeness/client"
)

// with runs a sidecar and a client of it.
func with(f func(context.Context, *client.Client) error) {
	err := func() (err error) {
		dir, err := os.MkdirTemp("", "likeness")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		s, err := startSidecar(dir, "")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		c, err := client.Dial(s.address, client.Options{})
		if err != nil {
			return err
		}
		defer c.Close()
		return f(context.Background(), c)
	}()
	if err != nil {
		fmt.Println(err) //nolint:forbidigo // an example's output
	}
}

func Example() {
	with(func(ctx context.Context, c *client.Client) error {
		answer, err := c.Search(ctx, client.Search{
			Route: "things", Query: client.Query{Vector: []float32{1, 2}}, K: 2, PayloadFields: []string{"name"},
		})
		if err != nil {
			return err
		}
		for _, hit := range answer.Hits {
			fmt.Println(hit.ID, hit.Score, string(hit.Payload))
		}
		fmt.Println(answer.Certificate.Status, answer.Certificate.Candidates, "candidates")
		return nil
	})
	// Output:
	// c 3 {"name":"third"}
	// 7 2 {"name":"second"}
	// exact 3 candidates
}

// Errors are told apart with errors.Is, and have what the sidecar said with errors.As.
func ExampleError() {
	with(func(ctx context.Context, c *client.Client) error {
		_, err := c.Search(ctx, client.Search{Route: "things", Query: client.Query{Vector: []float32{1, 2}}, K: -1})
		var e *client.Error
		if errors.Is(err, client.ErrInvalid) && errors.As(err, &e) {
			fmt.Println(e.Reason, e.Fields[0].Name)
		}
		_, err = c.Route(ctx, "nothing")
		fmt.Println(errors.Is(err, client.ErrNotFound), errors.Is(err, client.ErrOverloaded))
		return nil
	})
	// Output:
	// FIELD_INVALID k
	// true false
}

func ExampleClient_Each() {
	with(func(ctx context.Context, c *client.Client) error {
		questions := func(yield func(client.Search) bool) {
			for _, v := range [][]float32{{1, 0}, {0, 1}, {-1, -1}} {
				if !yield(client.Search{Route: "things", Query: client.Query{Vector: v}, K: 1}) {
					return
				}
			}
		}
		for i, r := range c.Each(ctx, questions, 2) {
			if r.Err != nil {
				return r.Err
			}
			fmt.Println(i, r.Answer.Hits[0].ID, r.Answer.Hits[0].Score)
		}
		return nil
	})
	// Output:
	// 0 a 1
	// 1 7 1
	// 2 7 -1
}

func ExampleClient_Explain() {
	with(func(ctx context.Context, c *client.Client) error {
		explained, missing, err := c.Explain(ctx, "things", client.Query{Vector: []float32{1, 2}},
			client.Items{IDs: []client.ID{client.Text("a"), client.Number(99)}})
		if err != nil {
			return err
		}
		for _, term := range explained[0].Terms {
			fmt.Println(explained[0].Score, "=", term.Gate, "*", term.Logit)
		}
		fmt.Println("missing:", missing)
		return nil
	})
	// Output:
	// 1 = 1 * 1
	// missing: [99]
}

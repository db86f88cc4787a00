package harness_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	grpc_retry "github.com/grpc-ecosystem/go-grpc-middleware/retry"
	milvusclient "github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/e2e/harness"
)

// milvusGo makes every kind of request of Milvus's Go client. A refusal counts as an answer.
func milvusGo(token string) harness.Client {
	return harness.Client{Name: "Go milvus-sdk-go 2.4.2", Run: func(ctx context.Context, at harness.Address) ([]harness.Step, error) {
		user, password, _ := strings.Cut(token, ":")
		c, err := milvusclient.NewClient(ctx, milvusclient.Config{Address: at.GRPC, Username: user, Password: password, DialOptions: []grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc_retry.Disable()),
		}})
		if err != nil {
			return nil, err
		}
		defer c.Close()
		_ = c.DropCollection(ctx, milvusGoName) // what another run left
		g := &milvusGoScenario{ctx: ctx, c: c}
		g.schema()
		g.rows()
		g.searches()
		g.rest()
		return g.steps, nil
	}}
}

const milvusGoName = "harness_go"

type milvusGoScenario struct {
	ctx   context.Context
	c     milvusclient.Client
	steps []harness.Step
}

// step records what a call returns, as JSON has it.
func (g *milvusGoScenario) step(name string, call func() (any, error)) {
	s := harness.Step{Name: name}
	result, err := call()
	if err == nil {
		s.Result, err = json.Marshal(result)
	}
	if err != nil {
		s.Result, s.Error = nil, &harness.Failure{Type: fmt.Sprintf("%T", err), Message: err.Error(), Code: status.Code(err).String()}
	}
	g.steps = append(g.steps, s)
}

func (g *milvusGoScenario) done(name string, call func() error) {
	g.step(name, func() (any, error) { return "done", call() })
}

func goVectors(n int) (vectors [][]float32) {
	for i := range n {
		x := float32(i)
		vectors = append(vectors, []float32{x / 7, 2 - x/5, x * x / 100, 1 / (1 + x)})
	}
	return vectors
}

func (g *milvusGoScenario) schema() {
	ctx, c := g.ctx, g.c
	s := entity.NewSchema().WithName(milvusGoName).WithDynamicFieldEnabled(true).
		WithField(entity.NewField().WithName("key").WithDataType(entity.FieldTypeVarChar).WithMaxLength(40).WithIsPrimaryKey(true)).
		WithField(entity.NewField().WithName("vec").WithDataType(entity.FieldTypeFloatVector).WithDim(4)).
		WithField(entity.NewField().WithName("n").WithDataType(entity.FieldTypeInt32)).
		WithField(entity.NewField().WithName("doc").WithDataType(entity.FieldTypeJSON))
	g.step("version", func() (any, error) { return c.GetVersion(ctx) })
	g.step("health", func() (any, error) { return c.CheckHealth(ctx) })
	g.step("databases", func() (any, error) { return c.ListDatabases(ctx) })
	g.step("has not", func() (any, error) { return c.HasCollection(ctx, milvusGoName) })
	g.done("create", func() error {
		return c.CreateCollection(ctx, s, 1, milvusclient.WithConsistencyLevel(entity.ClStrong))
	})
	g.done("create again", func() error { return c.CreateCollection(ctx, s, 1) })
	g.step("has", func() (any, error) { return c.HasCollection(ctx, milvusGoName) })
	g.step("describe", func() (any, error) {
		d, err := c.DescribeCollection(ctx, milvusGoName)
		if err != nil {
			return nil, err
		}
		return []any{d.Name, d.Schema, d.ConsistencyLevel, d.ShardNum}, nil
	})
	g.step("describe what is not there", func() (any, error) { return c.DescribeCollection(ctx, "absent") })
	g.done("search what is not loaded", func() error { return g.search(3, "", "vec", entity.IP).err })
	flat, _ := entity.NewIndexFlat(entity.IP) // of a constant: no error
	g.done("index", func() error { return c.CreateIndex(ctx, milvusGoName, "vec", flat, false) })
	g.done("index of no field", func() error { return c.CreateIndex(ctx, milvusGoName, "absent", flat, false) })
	g.step("describe index", func() (any, error) {
		all, err := c.DescribeIndex(ctx, milvusGoName, "vec")
		if err != nil {
			return nil, err
		}
		return []any{all[0].IndexType(), all[0].Params()}, nil
	})
	g.done("load", func() error { return c.LoadCollection(ctx, milvusGoName, false) })
	g.step("load state", func() (any, error) { return c.GetLoadState(ctx, milvusGoName, nil) })
}

func (g *milvusGoScenario) rows() {
	ctx, c := g.ctx, g.c
	const n = 30
	columns := func(n int) []entity.Column {
		var keys []string
		var numbers []int32
		var docs [][]byte
		for i := range n {
			keys, numbers = append(keys, fmt.Sprintf("k%02d \"é", i)), append(numbers, int32(i)-5)
			docs = append(docs, fmt.Appendf(nil, `{"i":%d,"x":[1,2.5,null]}`, i))
		}
		return []entity.Column{
			entity.NewColumnVarChar("key", keys), entity.NewColumnFloatVector("vec", 4, goVectors(n)),
			entity.NewColumnInt32("n", numbers), entity.NewColumnJSONBytes("doc", docs), entity.NewColumnInt32("extra", numbers),
		}
	}
	inserted := func(col entity.Column, err error) (any, error) {
		if err != nil {
			return nil, err
		}
		return col.Len(), nil
	}
	g.step("insert", func() (any, error) { return inserted(c.Insert(ctx, milvusGoName, "", columns(n)...)) })
	g.step("insert without a field", func() (any, error) { return inserted(c.Insert(ctx, milvusGoName, "", columns(2)[:2]...)) })
	g.step("insert into what is not there", func() (any, error) { return inserted(c.Insert(ctx, "absent", "", columns(2)...)) })
	g.step("upsert", func() (any, error) { return inserted(c.Upsert(ctx, milvusGoName, "", columns(3)...)) })
	for _, expr := range []string{`n > 20`, `key in ["k03 \"é"]`, `doc["i"] == 4`, `extra < -3`, `n ==`, `absent == 1`} {
		g.step("query "+expr, func() (any, error) {
			r, err := c.Query(ctx, milvusGoName, nil, expr, []string{"key", "n", "doc", "vec"})
			return columnsText(r), err
		})
	}
	g.step("query a page", func() (any, error) {
		r, err := c.Query(ctx, milvusGoName, nil, "n > -9", []string{"n"}, milvusclient.WithLimit(3), milvusclient.WithOffset(4))
		return columnsText(r), err
	})
	g.step("count", func() (any, error) {
		r, err := c.Query(ctx, milvusGoName, nil, "", []string{"count(*)"})
		return columnsText(r), err
	})
	g.step("get", func() (any, error) {
		r, err := c.Get(ctx, milvusGoName, entity.NewColumnVarChar("key", []string{"k04 \"é", "absent"}))
		return columnsText(r), err
	})
}

// columnsText shows columns with their types.
func columnsText(r milvusclient.ResultSet) (out []string) {
	for _, col := range r {
		values := []any{}
		for i := range col.Len() {
			v, err := col.Get(i)
			if b, ok := v.([]byte); ok {
				v = string(b)
			}
			values = append(values, v, err)
		}
		out = append(out, fmt.Sprintf("%s %v %v", col.Name(), col.Type(), values))
	}
	slices.Sort(out) // Milvus gives them in an order by chance
	return out
}

// found is a search's answer.
type found struct {
	results []milvusclient.SearchResult
	err     error
}

func (g *milvusGoScenario) search(topK int, expr, field string, metric entity.MetricType, options ...milvusclient.SearchQueryOptionFunc) found {
	params, err := entity.NewIndexFlatSearchParam()
	if err != nil {
		return found{err: err}
	}
	var vectors []entity.Vector
	for _, v := range goVectors(3) {
		vectors = append(vectors, entity.FloatVector(v))
	}
	r, err := g.c.Search(g.ctx, milvusGoName, nil, expr, []string{"n", "doc", "extra"}, vectors, field, metric, topK, params, options...)
	return found{r, err}
}

func (f found) text() (any, error) {
	var out []any
	for _, r := range f.results {
		ids := []any{}
		for i := range r.ResultCount {
			id, err := r.IDs.Get(i)
			ids = append(ids, id, fmt.Sprint(err))
		}
		out = append(out, []any{ids, r.Scores, columnsText(r.Fields)})
	}
	return out, f.err
}

func (g *milvusGoScenario) searches() {
	for _, s := range []struct {
		name string
		call func() found
	}{
		{"search", func() found { return g.search(4, "", "vec", entity.IP) }},
		{"search with a filter", func() found { return g.search(4, "n > 3", "vec", entity.IP) }},
		{"search with a broken filter", func() found { return g.search(4, "n >", "vec", entity.IP) }},
		{"search a page", func() found { return g.search(4, "", "vec", entity.IP, milvusclient.WithOffset(3)) }},
		{"search of another metric", func() found { return g.search(4, "", "vec", entity.L2) }},
		{"search of no field", func() found { return g.search(4, "", "absent", entity.IP) }},
		{"search too deep", func() found { return g.search(16385, "", "vec", entity.IP) }},
		{"search for none", func() found { return g.search(0, "", "vec", entity.IP) }},
		{"search grouped", func() found { return g.search(4, "", "vec", entity.IP, milvusclient.WithGroupByField("n")) }},
		{"search at Eventually", func() found {
			return g.search(4, "", "vec", entity.IP, milvusclient.WithSearchQueryConsistencyLevel(entity.ClEventually))
		}},
		{"search ignoring what grows", func() found { return g.search(4, "", "vec", entity.IP, milvusclient.WithIgnoreGrowing()) }},
	} {
		g.step(s.name, func() (any, error) { return s.call().text() })
	}
	g.step("search past its time", func() (any, error) {
		ctx, cancel := context.WithDeadline(g.ctx, time.Unix(0, 0))
		defer cancel()
		late := *g
		late.ctx = ctx
		return late.search(4, "", "vec", entity.IP).text()
	})
}

func (g *milvusGoScenario) rest() {
	ctx, c := g.ctx, g.c
	g.done("create a partition", func() error { return c.CreatePartition(ctx, milvusGoName, "part") })
	g.step("has a partition", func() (any, error) { return c.HasPartition(ctx, milvusGoName, "part") })
	g.done("create an alias", func() error { return c.CreateAlias(ctx, milvusGoName, "harness_go_alias") })
	g.done("alter an alias", func() error { return c.AlterAlias(ctx, milvusGoName, "harness_go_alias") })
	g.done("drop an alias", func() error { return c.DropAlias(ctx, "harness_go_alias") })
	g.done("delete", func() error { return c.Delete(ctx, milvusGoName, "", `key in ["k04 \"é"]`) })
	g.done("delete by another filter", func() error { return c.Delete(ctx, milvusGoName, "", "n > 20") })
	g.done("delete by a broken filter", func() error { return c.Delete(ctx, milvusGoName, "", "n >") })
	g.step("count after deletes", func() (any, error) {
		r, err := c.Query(ctx, milvusGoName, nil, "", []string{"count(*)"})
		return columnsText(r), err
	})
	g.step("users", func() (any, error) { return c.ListCredUsers(ctx) })
	g.done("create a user", func() error { return c.CreateCredential(ctx, "harness_go_user", "Passw0rd!") })
	g.done("delete a user", func() error { return c.DeleteCredential(ctx, "harness_go_user") })
	g.step("roles", func() (any, error) { return c.ListRoles(ctx) })
	g.done("create a database", func() error { return c.CreateDatabase(ctx, "harness_go_db") })
	g.done("drop a database", func() error { return c.DropDatabase(ctx, "harness_go_db") })
	g.step("resource groups", func() (any, error) { return c.ListResourceGroups(ctx) })
	g.done("rename", func() error { return c.RenameCollection(ctx, milvusGoName, "harness_go2") })
	g.done("rename back", func() error { return c.RenameCollection(ctx, "harness_go2", milvusGoName) })
	g.done("release", func() error { return c.ReleaseCollection(ctx, milvusGoName) })
	g.done("drop an index", func() error { return c.DropIndex(ctx, milvusGoName, "vec") })
	g.done("drop", func() error { return c.DropCollection(ctx, milvusGoName) })
	g.done("drop again", func() error { return c.DropCollection(ctx, milvusGoName) })
}

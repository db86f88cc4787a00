package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/sidecar/derive"
	"github.com/likenessdb/likeness/sidecar/route"
)

// CompanionJob describes a companion collection to build.
type CompanionJob struct {
	Source Source
	Model  route.Model // must be a rerank.Deriver
	// Vectors holds the model's behavioural vectors, or nil. Each becomes a row whose
	// field Owner names its item.
	Vectors *maxsim.Vectors
	Owner   string
	Writer  adapters.Writer
	Name    string // name of the companion
	// Strategies lists the strategies whose probes will search the companion. Weights
	// are the weights of their averaged probe.
	Strategies []rerank.Strategy
	Weights    rerank.Weights
	// Features also writes the fields from which the derived placement assembles
	// feature rows.
	Features bool
	// State is the file that records the progress of a build, so that an interrupted
	// build can resume. If empty, nothing is recorded.
	State string
	// Force drops an existing companion. A part (see Source.Part) restarts from its
	// beginning but does not drop, because other parts write to the same companion.
	Force    bool
	Progress Progress
}

// BuildCompanion streams a collection into its companion, which has the same ids and
// payloads and the fields that the strategies search. It resumes an interrupted build
// of the same model version. It returns ErrSource, ErrExists if the companion exists
// and Force is not set, or the store's error. At the end, if the store supports it,
// BuildCompanion counts the rows and reads back up to a thousand rows that this run
// wrote. If they differ it returns ErrVerify, and the next run writes every row again.
func BuildCompanion(ctx context.Context, job CompanionJob) (Result, error) {
	fields, err := job.Fields()
	if err == nil {
		err = checkVectors(job.Model, job.Vectors)
	}
	if err == nil && job.Model.Similarity.Spec().Kind == rerank.KindLate && job.Source.Owner != "" {
		err = fmt.Errorf("%w: a learned companion of late interaction takes all vectors of an item at once; keep them in one multi-vector field in place of rows with the owner %q",
			ErrSource, job.Source.Owner)
	}
	if err != nil {
		return Result{}, err
	}
	d, err := job.Source.describe(ctx, job.Model.Similarity.Spec())
	if err != nil {
		return Result{}, err
	}
	b := &companionBuild{CompanionJob: job, fields: fields, saved: time.Now()}
	b.schema = adapters.Schema{Collection: job.Name, TextIDs: d.TextIDs, Owner: job.Source.Owner, TextOwners: d.TextIDs}
	if job.Vectors != nil {
		b.schema.TextIDs, b.schema.Owner, b.schema.TextOwners = true, job.Owner, job.Vectors.TextIDs()
	}
	for _, f := range fields {
		b.schema.Fields = append(b.schema.Fields, adapters.VectorField{Name: f.Name, Dim: f.Dim, Metric: adapters.InnerProduct})
	}
	if err := b.begin(ctx); err != nil {
		return Result{}, err
	}
	if b.state.Done {
		b.result.Rows, b.result.Items = b.state.Rows, b.state.Rows
		return b.result, nil
	}
	before, err := countRows(ctx, job.Source.Store, job.Source.Collection)
	if err != nil {
		return Result{}, err
	}
	if err := b.copyCollection(ctx, int(d.Rows)); err != nil {
		return Result{}, b.state.save(b.State, err)
	}
	if b.result.Verified, err = b.verify(ctx, before); err != nil {
		if errors.Is(err, ErrVerify) { // the next run must write every row again
			b.state.Cursor, b.state.Rows, b.state.Written = "", 0, 0
		}
		return b.result, b.state.save(b.State, err)
	}
	b.state.Done = true
	return b.result, b.state.save(b.State, nil)
}

// Fields returns the fields that the job writes. It returns ErrSource if the
// strategies search no field that the similarity derives.
func (job CompanionJob) Fields() ([]rerank.Field, error) {
	d := rerank.AbilitiesOf(job.Model.Similarity).Derive
	if d == nil {
		return nil, fmt.Errorf("%w: model %s of kind %s searches the stored vectors; it needs no companion",
			ErrSource, job.Model.Name, job.Model.Similarity.Spec().Kind)
	}
	weights := job.Weights
	if weights == "" {
		weights = rerank.UniformWeights
	}
	var fields []rerank.Field
	for _, f := range d.Fields() {
		searched := slices.ContainsFunc(job.Strategies, func(s rerank.Strategy) bool { return slices.Contains(f.Strategies, s) })
		if f.Weights != "" && f.Weights != weights {
			searched = false
		}
		if searched || job.Features && f.Feature {
			fields = append(fields, f)
		}
	}
	if len(fields) == 0 {
		return nil, fmt.Errorf("%w: the strategies %q of model %s search no derived field; it needs no companion", ErrSource, job.Strategies, job.Model.Name)
	}
	return fields, nil
}

// companionBuild is the state of a running build.
type companionBuild struct {
	CompanionJob
	fields []rerank.Field
	schema adapters.Schema
	state  state
	saved  time.Time
	sample rowSample
	result Result
}

// begin creates the companion, or finds where the last run stopped. It writes the
// state before it creates the collection, so that a rerun recognises the collection as
// its own.
func (b *companionBuild) begin(ctx context.Context) error {
	want := state{Collection: b.Source.Collection, Companion: b.Name, ModelVersion: b.Model.Version, Part: b.Source.Part}
	for _, f := range b.fields {
		want.Fields = append(want.Fields, f.Name)
	}
	there, err := b.companionExists(ctx)
	if err != nil && !b.Source.Part.isWhole() {
		there, err = retryFor30s(ctx, func() (bool, error) { return b.companionExists(ctx) })
	}
	if err != nil {
		return err
	}
	if !b.Force {
		before, err := loadState(b.State)
		if err != nil {
			return err
		}
		if before != nil && (there || before.Rows == 0) {
			if err := before.matches(want, b.State); err != nil {
				return err
			}
			b.state, b.result.Resumed = *before, before.Rows
			return b.create(ctx, there)
		}
	} else if b.Source.Part.isWhole() {
		if err := b.Writer.Drop(ctx, b.Name); err != nil {
			return err
		}
		there = false
	}
	if there && b.Source.Part.isWhole() {
		return fmt.Errorf("%w: companion %s; replace it with --force", ErrExists, b.Name)
	}
	b.state = want
	if b.state.Bounds, err = b.Source.findBounds(ctx); err != nil {
		return err
	}
	if err := b.state.save(b.State, nil); err != nil {
		return err
	}
	return b.create(ctx, there)
}

// create creates the companion unless it exists. When several parts start at once, one
// of them creates it and the others wait for it.
func (b *companionBuild) create(ctx context.Context, there bool) error {
	if there {
		return nil
	}
	err := b.Writer.Create(ctx, b.schema)
	if err == nil || b.Source.Part.isWhole() {
		return err
	}
	_, other := retryFor30s(ctx, func() (bool, error) {
		there, err := b.companionExists(ctx)
		if err == nil && !there {
			err = fmt.Errorf("%w: companion %q", adapters.ErrNotFound, b.Name)
		}
		return there, err
	})
	if other != nil {
		return errors.Join(err, other)
	}
	return nil
}

// retryFor30s retries check for up to 30 seconds. A cluster that creates a collection
// for another worker takes time to list it, and cannot describe it before its shards
// exist.
func retryFor30s(ctx context.Context, ask func() (bool, error)) (bool, error) {
	return backoff.Retry(ctx, ask, backoff.WithBackOff(backoff.NewExponentialBackOff()), backoff.WithMaxElapsedTime(30*time.Second))
}

// companionExists asks the store whether the companion exists. It returns false if the store
// cannot tell; Create then reports an existing collection.
func (b *companionBuild) companionExists(ctx context.Context) (bool, error) {
	d := adapters.AbilitiesOf(b.Writer).Describe
	if d == nil {
		return false, nil
	}
	_, err := d.Describe(ctx, b.Name)
	if errors.Is(err, adapters.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (b *companionBuild) copyCollection(ctx context.Context, rows int) error {
	done := b.Progress.begin("writing companion "+b.Name, rows)
	done(b.state.Rows)
	request := b.Source.request()
	request.Owner, request.Payload, request.PayloadFields, request.Cursor = b.Source.Owner, true, nil, b.state.Cursor
	return b.Source.scan(ctx, b.state.Bounds, request, func(rows adapters.Rows, cursor string) error {
		read := len(rows.IDs)
		if rows = b.result.dropMissing(rows); len(rows.IDs) > 0 {
			if err := b.writeRows(ctx, rows); err != nil {
				return err
			}
		}
		done(read)
		b.state.Cursor = cursor
		b.state.Rows += read
		if !b.Source.isDue(b.saved) {
			return nil
		}
		b.saved = time.Now()
		return b.state.save(b.State, nil)
	})
}

func (b *companionBuild) writeRows(ctx context.Context, rows adapters.Rows) error {
	items := len(rows.IDs)
	if b.Vectors != nil {
		rows = expandVectors(rows, b.Vectors)
	}
	features, err := b.encodeRows(ctx, &rows)
	if err != nil || len(rows.IDs) == 0 {
		return err
	}
	derived := adapters.Rows{IDs: rows.IDs, Owners: rows.Owners, Payloads: rows.Payloads}
	encoded := rerank.Items{Features: features, Starts: rows.Starts}
	if derived.Vectors, err = derive.Fields(rerank.AbilitiesOf(b.Model.Similarity).Derive, b.fields, encoded); err != nil {
		return err
	}
	b.result.Rows += encoded.Len()
	b.result.Items += items
	if err := b.Writer.Write(ctx, b.Name, b.schema, derived); err != nil {
		return err
	}
	b.state.Written += len(derived.IDs)
	b.sample.add(derived)
	return nil
}

// encodeRows computes the feature rows of the given rows. With a Base it removes rows
// from which no finite features can be computed.
func (b *companionBuild) encodeRows(ctx context.Context, rows *adapters.Rows) (rerank.Matrix, error) {
	base, err := b.Source.baseVectors(ctx, *rows)
	if err != nil {
		return rerank.Matrix{}, err
	}
	features, err := derive.EncodeRows(b.Model.Similarity, base)
	if err != nil {
		return features, err
	}
	bad := b.result.noteNotFinite(features, itemOf(rows.IDs, rows.Starts))
	if bad == 0 || b.Source.Base == nil {
		return features, nil
	}
	rows.Vectors = []rerank.Matrix{features}
	fit := map[rerank.ID]bool{}
	for i, id := range rows.IDs {
		fit[id] = rerank.CheckFinite("features", features.Row(i)) == nil
	}
	*rows = filterRows(*rows, func(id rerank.ID) bool { return fit[id] })
	return rows.Vectors[0], nil
}

-- The place of each span of an autopilot in the files of its trace. The files are the truth: the index can be made of them anew.
CREATE TABLE trace_index (
    run_id TEXT NOT NULL,
    span_id TEXT NOT NULL,
    parent_span_id TEXT,
    trace_id TEXT NOT NULL,
    operation TEXT NOT NULL CHECK (operation IN ('run', 'phase_transition', 'tool_call', 'model_request', 'gate', 'hook')),
    started_at INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL CHECK (duration_ms >= 0),
    project TEXT NOT NULL,
    file_path TEXT NOT NULL,
    file_offset INTEGER NOT NULL CHECK (file_offset >= 0),
    PRIMARY KEY (run_id, span_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX trace_index_started ON trace_index (started_at);
CREATE INDEX trace_index_trace ON trace_index (trace_id, span_id);
CREATE INDEX trace_index_file ON trace_index (project, file_path, file_offset);

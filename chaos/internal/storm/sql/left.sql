-- Every job that is not done. {text} makes the state a text where it is none.
SELECT id, state{text} FROM {table} WHERE state <> 'completed'

# frozen_string_literal: true

Rails.application.routes.draw do
  root 'pages#home'
  get 'streamed' => 'pages#streamed'
  get 'file' => 'pages#file'
  get 'boom' => 'pages#boom'
  get 'api/hello' => 'api#hello'
  post 'api/echo' => 'api#echo'
  post 'api/upload' => 'api#upload'
  get 'api/who' => 'api#who'
  get 'live' => 'live#events'
end
